// The streams of this browser: a shared worker, which all tabs of the console have in common. A browser has few connections
// to a server, and a server has few streams. So tabs that follow the same stream share it, and a hidden tab follows none.
//
// A tab sends {url, headers, last} to follow a stream, and {url, stop: true} to leave it. It receives {url, open: true} when
// the stream has begun, {url, id, type, data} for each event, and {url, failed: true} if the stream ended.

import { readEvents } from './sse.js';

const streams = new Map(); // by what identifies them

function leave(port, url) {
  for (const [key, s] of streams) {
    if (s.url !== url || !s.ports.delete(port) || s.ports.size > 0) continue;
    s.stop.abort();
    streams.delete(key);
  }
}

function follow(port, { url, headers, last }) {
  leave(port, url);
  const key = JSON.stringify([url, headers, last]);
  const known = streams.get(key);
  if (known) {
    known.ports.add(port);
    if (known.open) port.postMessage({ url, open: true });
    return;
  }
  const s = { url, ports: new Set([port]), open: false, stop: new AbortController() };
  streams.set(key, s);
  const send = (message) => { for (const to of s.ports) to.postMessage({ url, ...message }); };
  const ended = () => {
    if (streams.get(key) !== s) return;
    streams.delete(key);
    send({ failed: true });
  };
  readEvents(url, headers, last, () => {
    s.open = true;
    send({ open: true });
  }, (id, type, data) => send({ id, type, data }), s.stop.signal).then(ended, ended);
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => (data.stop ? leave(port, data.url) : follow(port, data));
};
