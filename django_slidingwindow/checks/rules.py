"""The middleware's rules: can they match, and do they name what exists?"""
