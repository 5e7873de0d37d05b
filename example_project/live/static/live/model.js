// What happened, in numbers: no drawing here, and no clock.
// A request is {at, cost, admitted}: when the server decided it, in milliseconds.

// Which requests a fixed window would have let in: a counter that starts anew at every
// full window. They are given in the order of time, and each is offered, as it was to Redis.
export function fixedWindow(requests, limit, window) {
  let current = null;
  let count = 0;
  return requests.map(({ at, cost }) => {
    const number = Math.floor(at / window);
    if (number !== current) {
      current = number;
      count = 0;
    }
    const admitted = count + cost <= limit;
    if (admitted) count += cost;
    return admitted;
  });
}

// How many hits lie in the window that ends with each request, that request included.
export function trailing(requests, admitted, window) {
  let first = 0;
  let sum = 0;
  return requests.map(({ at, cost }, i) => {
    if (admitted[i]) sum += cost;
    while (requests[first].at <= at - window) {
      if (admitted[first]) sum -= requests[first].cost;
      first += 1;
    }
    return sum;
  });
}

// The same for every moment: [time, hits] wherever the number changes, also after now,
// because it is known when each hit leaves.
export function steps(requests, admitted, window) {
  const changes = [];
  requests.forEach(({ at, cost }, i) => {
    if (admitted[i]) changes.push([at, cost], [at + window, -cost]);
  });
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let sum = 0;
  return changes.map(([at, change]) => [at, (sum += change)]);
}

export function summary(requests, admitted, window) {
  const passed = admitted.filter(Boolean).length;
  return {
    passed,
    refused: requests.length - passed,
    most: Math.max(0, ...trailing(requests, admitted, window)),
  };
}
