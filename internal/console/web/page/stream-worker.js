// The stream of this browser: a shared worker, which all tabs of the console have in common. A browser has few connections
// to a server, and a server has few streams. So at most one stream is open: that of the tab that became visible last. A
// hidden tab has none.
//
// A tab sends {url, headers, last} to follow a stream and null to stop. It receives {id, type, data} for each event,
// {ended: true} after the last one, {failed: true} if the stream broke, and {taken: true} if another tab took the place.

import { readEvents } from './sse.js';

let holder = null; // {port, stop}

function stop(port) {
  if (holder?.port !== port) return;
  holder.stop.abort();
  holder = null;
}

async function follow(port, { url, headers, last }) {
  if (holder) {
    if (holder.port !== port) holder.port.postMessage({ taken: true });
    holder.stop.abort();
  }
  const mine = { port, stop: new AbortController() };
  holder = mine;
  try {
    const ended = await readEvents(url, headers, last, (id, type, data) => {
      if (holder === mine) port.postMessage({ id, type, data });
    }, mine.stop.signal);
    if (holder === mine) port.postMessage(ended ? { ended: true } : { failed: true });
  } catch {
    if (holder === mine) port.postMessage({ failed: true });
  }
  if (holder === mine) holder = null;
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => (data ? follow(port, data) : stop(port));
};
