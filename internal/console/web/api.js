// A client of the console's HTTP API. Errors are thrown as a Problem, with the fields of RFC 9457.

const root = 'api/v1';
const tokenPlace = 'waybill.token'; // in the storage of this tab, until it is closed

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

/** The path of a task, or of a resource below it. */
export function taskPath(id, below = '') {
  if (id === '.' || id === '..') {
    throw new Problem(0, 'A browser can\'t request this task', `${id} is a relative path segment; use \`waybill task get ${id}\``);
  }
  return `/tasks/${encodeURIComponent(id)}${below}`;
}

/** A request id. A command that is repeated with the same id has no second effect. */
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
    throw new Problem(0, 'The console does not answer', 'it was stopped, or can\'t be reached from this machine');
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

/** Sends a GET request. query is an object of parameters; empty ones are left out. */
export async function ask(path, query = {}, signal) {
  return (await asked(path, query, signal)).json();
}

/**
 * Requests data of users. Numbers that JavaScript would change (5.0, 12345678901234567) are kept as they were written, if
 * the browser supports that (JSON.rawJSON: Chromium 114, Firefox 135, Safari 18.4).
 */
export async function askExactly(path, query = {}, signal) {
  const changed = (value, source) => typeof value === 'number' && source !== undefined && String(value) !== source;
  return JSON.parse(await (await asked(path, query, signal)).text(),
    (_, value, context) => (JSON.rawJSON && changed(value, context?.source) ? JSON.rawJSON(context.source) : value));
}

/**
 * Sends a POST request with an object of members. texts are members whose values are JSON texts, which are sent unchanged:
 * JavaScript's numbers would turn 5.0 into 5 and change 12345678901234567.
 */
export async function post(path, members, texts = {}) {
  const all = [...Object.entries(members).map(([name, value]) => [name, JSON.stringify(value)]), ...Object.entries(texts)];
  const body = `{${all.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(',')}}`;
  return (await fetched(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })).json();
}

/**
 * Calls came for each event of a stream until the stream ends. (An EventSource can't send a token.) Returns the id of the
 * last event, so that the caller can resume after it.
 */
export async function follow(path, last, came, signal) {
  const answer = await fetched(path, { signal, headers: last ? { 'Last-Event-ID': last } : {} });
  if (answer.status === 204) return last; // no further events
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
