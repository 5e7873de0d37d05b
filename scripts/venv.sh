# Sourced by the other scripts, from the project's root. PYTHON names another Python.

python=${PYTHON:-python3}

fail() {
    echo "$0: $*" >&2
    exit 1
}

# venv NAME: a virtual environment inside the project, one for each version of Python.
# Sets $venv to its interpreter. Nothing is ever installed outside of it.
venv() {
    command -v "$python" >/dev/null ||
        fail "there is no $python. Install Python 3.10 or newer, or set PYTHON to one."
    local version
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$python is Python $version, and 3.10 or newer is needed. Set PYTHON to one."
    local folder=.cache/venv/$1-$version
    venv=$PWD/$folder/bin/python
    # An environment whose Python has gone, or that was interrupted, is made anew.
    "$venv" -m pip --version >/dev/null 2>&1 && return
    "$python" -m venv --clear "$folder" ||
        fail "$python cannot make virtual environments." \
            "On Debian and Ubuntu: apt-get install python3-venv. Or set PYTHON."
}

# interruptible COMMAND...: runs it; a signal that ends this script ends it as well.
interruptible() {
    "$@" &
    # shellcheck disable=SC2064 # the id is that of this command
    trap "kill $! 2>/dev/null; wait; exit 130" INT TERM
    local code=0
    wait $! || code=$?
    trap - INT TERM
    return $code
}
