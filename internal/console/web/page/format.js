// Instants and durations as text.

import { signal } from '@preact/signals';
import { kept } from './kept.js';

/** How instants are shown: relative, local or utc. */
export const clock = kept('waybill.clock', 'local');
export const clocks = ['local', 'relative', 'utc'];

/** The current time in ms, to the second. It stands still while the page is hidden. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
document.addEventListener('visibilitychange', () => { now.value = Date.now(); });

const two = (n) => String(n).padStart(2, '0');

/** An instant in local time. exact: to the ms. */
export function localText(at, exact = false) {
  const d = new Date(at);
  const ms = exact ? `.${String(d.getMilliseconds()).padStart(3, '0')}` : '';
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}${ms}`;
}

export function utcText(at, exact = false) {
  const text = new Date(at).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, exact ? 23 : 19)} UTC`;
}

/** How long ago an instant was, or how long until it comes. */
export function relativeText(at, from = now.value) {
  const ms = Date.parse(at) - from;
  const text = coarse(Math.abs(ms));
  return ms > 0 ? `in ${text}` : `${text} ago`;
}

/** A duration by its largest unit or two: 4 min, 2 h 5 min, 3 d. */
export function coarse(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  const min = Math.floor(s / 60);
  if (min < 60) return min < 5 && s % 60 ? `${min} min ${s % 60} s` : `${min} min`;
  const h = Math.floor(min / 60);
  if (h < 24) return min % 60 ? `${h} h ${min % 60} min` : `${h} h`;
  const d = Math.floor(h / 24);
  return h % 24 && d < 7 ? `${d} d ${h % 24} h` : `${d} d`;
}

/** A duration in ms, formatted. */
export function durationText(ms) {
  if (ms == null || Number.isNaN(ms)) return '';
  if (Math.abs(ms) < 1000) return `${ms} ms`;
  if (Math.abs(ms) < 60_000) return `${(ms / 1000).toFixed(3).replace(/\.?0+$/, '')} s`;
  const s = Math.round(ms / 1000);
  const h = Math.trunc(s / 3600);
  return `${h ? `${h} h ` : ''}${Math.trunc((s % 3600) / 60)} min ${Math.abs(s % 60)} s`;
}

/** A number of bytes. */
export const bytesText = (n) => (n < 1024 ? `${n} bytes` : `${(n / 1024).toFixed(1)} KiB`);

const group = new Intl.NumberFormat('en');
export const countText = (n) => (n == null ? 'unknown' : group.format(n));

/** A number of things, such as 1 task or 2 tasks. */
export const numberOf = (n, noun) => `${countText(n)} ${noun}${n === 1 ? '' : 's'}`;
export const shareText = (n) => (n == null ? '' : `${Math.floor(n * 100)} %`);
