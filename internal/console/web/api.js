// The console's HTTP API, as a page of the console's own asks it. Every answer that isn't a good one is thrown as a
// Problem, with what RFC 9457 says of it.

const root = 'api/v1';
const tokenPlace = 'waybill.token'; // in the storage of this tab: it is gone with it

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(tokenPlace),
  set: (value) => sessionStorage.setItem(tokenPlace, value),
  forget: () => sessionStorage.removeItem(tokenPlace),
};

/** The path of a task, and of what is below it. */
export function taskPath(id, below = '') {
  if (id === '.' || id === '..') {
    throw new Problem(0, 'A browser can\'t ask for this task', `it takes ${id} for a step in the path; \`waybill task get ${id}\` shows it`);
  }
  return `/tasks/${encodeURIComponent(id)}${below}`;
}

/** A request id: the same command again, when its answer was lost, has no second effect. */
export function requestID() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

async function fetched(path, options) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  let answer;
  try {
    answer = await fetch(root + path, { ...options, headers });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Problem(0, 'The console does not answer', 'it was stopped, or this machine cannot reach it');
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, problem.title ?? `HTTP ${answer.status}`, problem.detail);
}

async function asked(path, query, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value != null);
  const params = new URLSearchParams(given).toString();
  return fetched(path + (params && `?${params}`), { signal });
}

/** Asks; query is an object of parameters, of which empty ones are left out. */
export async function ask(path, query = {}, signal) {
  return (await asked(path, query, signal)).json();
}

/**
 * Asks for what holds others' data. A number that JavaScript would write in another way (5.0, 12345678901234567) stays as
 * it was written, where the browser can do that (JSON.rawJSON: Chromium 114, Firefox 135, Safari 18.4).
 */
export async function askExactly(path, query = {}, signal) {
  const changed = (value, source) => typeof value === 'number' && source !== undefined && String(value) !== source;
  return JSON.parse(await (await asked(path, query, signal)).text(),
    (_, value, context) => (JSON.rawJSON && changed(value, context?.source) ? JSON.rawJSON(context.source) : value));
}

/**
 * Commands, or submits: an object of some members, and of others whose values are JSON texts. Those go out as they were
 * typed: through JavaScript's numbers 5.0 would become 5, and 12345678901234567 another number.
 */
export async function post(path, members, texts = {}) {
  const all = [...Object.entries(members).map(([name, value]) => [name, JSON.stringify(value)]), ...Object.entries(texts)];
  const body = `{${all.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(',')}}`;
  return (await fetched(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })).json();
}

/**
 * Calls came for each event of a stream, as it comes, until the stream has ended: an EventSource can't send a token.
 * Returns the id of the last event, to go on after it.
 */
export async function follow(path, last, came, signal) {
  const answer = await fetched(path, { signal, headers: last ? { 'Last-Event-ID': last } : {} });
  if (answer.status === 204) return last; // all of it was told
  const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = '';
  for (;;) {
    const { value, done } = await text.read();
    if (done) return last;
    const whole = (kept + value).split('\n\n');
    kept = whole.pop();
    for (const block of whole) {
      const fields = Object.fromEntries(block.split('\n').filter((l) => !l.startsWith(':')).map((l) => l.split(/: (.*)/s, 2)));
      if (fields.id) {
        last = fields.id;
        came();
      }
    }
  }
}
