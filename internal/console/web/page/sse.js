// Server-Sent Events by fetch: an EventSource can't send a token.

/**
 * Calls opened when a stream has begun, then came(id, type, data) for each event until it ends. Throws what fetch throws,
 * and a status that isn't 2xx.
 */
export async function readEvents(url, headers, last, opened, came, signal) {
  const answer = await fetch(url, { signal, headers: last ? { ...headers, 'Last-Event-ID': last } : headers });
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  opened();
  if (answer.status === 204) return;
  const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = '';
  for (;;) {
    const { value, done } = await text.read();
    if (done) return;
    const blocks = (kept + value).split('\n\n');
    kept = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split('\n').filter((l) => !l.startsWith(':')).map((l) => l.split(/: (.*)/s, 2)));
      if (fields.id) came(fields.id, fields.event, fields.data);
    }
  }
}
