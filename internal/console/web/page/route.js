// The address: #/SCREEN/REST?PARAMETERS.

import { signal } from '@preact/signals';
import { allAnswered } from './live.js';

/** What the address names: {name, rest, params}. rest is decoded. */
export const route = signal(parseHash());

function parseHash() {
  const [path, query] = location.hash.replace(/^#?\/?/, '').split(/\?(.*)/s);
  const [name, ...rest] = path.split('/');
  return { name, rest: rest.map(decoded), params: new URLSearchParams(query) };
}

/** Decodes a part of an address. A part that isn't encoded is returned unchanged. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** An address of this page. Parameters without a value are left out. */
export function address(parts, params = {}) {
  const given = Object.entries(params).filter(([, v]) => v != null && v !== '' && v !== false);
  const query = new URLSearchParams(given).toString();
  return `#/${parts.map(encodeURIComponent).join('/')}${query ? `?${query}` : ''}`;
}

export const taskAddress = (id, params) => address(['tasks', id], params);
export const tasksAddress = (filter) => address(['tasks'], { filter });

/** A term of a filter of tasks, quoted if need be. */
export function term(name, value) {
  const text = `${name}:${value}`;
  return /[\s"\\]/.test(text) ? `"${text.replace(/[\\"]/g, '\\$&')}"` : text;
}

/** Goes to an address. */
export const go = (to) => { location.hash = to; };

/** Changes the address of the same screen, without a new entry in the history. */
export function replaceAddress(to) {
  history.replaceState(history.state, '', to);
  route.value = parseHash();
}

// Scroll positions, by entry of the history. The browser restores too early: before the answers have come.
const positions = new Map();
let entries = 0;
let entry = named(); // also the first one: Back may lead to it
history.scrollRestoration = 'manual';

/** The name of the current entry, which it keeps. */
function named() {
  const known = history.state?.entry;
  if (known !== undefined) return known;
  const fresh = Date.now() + ++entries;
  history.replaceState({ entry: fresh }, '');
  return fresh;
}

function arrive() {
  positions.set(entry, scrollY);
  entry = named();
  route.value = parseHash();
  restore(positions.get(entry) ?? 0);
}

/**
 * Scrolls to a position until all parts of the screen have come, unless the user scrolls first. A part that comes above the
 * others would move them.
 */
function restore(y) {
  scrollTo(0, y);
  if (y === 0) return;
  const stop = new AbortController();
  const { signal } = stop;
  const grown = new ResizeObserver(() => {
    scrollTo(0, y);
    if (Math.abs(scrollY - y) < 2 && allAnswered()) stop.abort();
  });
  grown.observe(document.body);
  signal.addEventListener('abort', () => grown.disconnect());
  for (const moved of ['wheel', 'keydown', 'pointerdown', 'hashchange']) addEventListener(moved, () => stop.abort(), { once: true, signal });
}

addEventListener('hashchange', arrive);
