// A client of the console's HTTP API. Errors are thrown as a Problem, with the fields of RFC 9457.

import { parse } from './json.js';

export const root = 'api/v1';
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

/** The path of a version of a workflow, or of a resource below it. */
export const workflowPath = (name, version, below = '') => `/workflows/${encodeURIComponent(name)}/${version}${below}`;

/** A request id. A command that is repeated with the same id has no second effect. */
export function requestID() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

export const authorization = () => (token.get() ? { Authorization: `Bearer ${token.get()}` } : {});

async function fetched(path, options) {
  let answer;
  try {
    answer = await fetch(root + path, { ...options, headers: { ...options.headers, ...authorization() } });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Problem(0, 'The console does not answer', 'it was stopped, or can\'t be reached from this machine');
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, problem.title ?? `HTTP ${answer.status}`, problem.detail);
}

/** A path with parameters; empty ones are left out. */
export function withQuery(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value != null && value !== false);
  const params = new URLSearchParams(given).toString();
  return path + (params && `?${params}`);
}

/** Sends a GET request and returns the text of the answer. */
export async function askText(path, signal) {
  return (await fetched(path, { signal })).text();
}

/** Sends a GET request. Data of users in the answer is Raw (json.js). */
export const ask = async (path, query, signal) => parse(await askText(withQuery(path, query), signal));

/**
 * Sends a POST request with an object of members. texts are members whose values are JSON texts, which are sent unchanged:
 * JavaScript's numbers would turn 5.0 into 5 and change 12345678901234567.
 */
export async function post(path, members, texts = {}) {
  const all = [...Object.entries(members).map(([name, value]) => [name, JSON.stringify(value)]), ...Object.entries(texts)];
  const body = `{${all.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(',')}}`;
  return parse(await (await fetched(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })).text());
}
