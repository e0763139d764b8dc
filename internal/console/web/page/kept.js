// Settings of this browser.

import { effect, signal } from '@preact/signals';

/** A signal that this browser keeps. A value that can't be read or kept is forgotten with the tab. */
export function kept(place, first) {
  let value = first;
  try {
    value = JSON.parse(localStorage.getItem(place)) ?? first;
  } catch { /* it is none of ours */ }
  const s = signal(value);
  let begun = false;
  effect(() => {
    const text = JSON.stringify(s.value);
    if (begun) {
      try {
        localStorage.setItem(place, text);
      } catch { /* storage is full or off */ }
    }
    begun = true;
  });
  return s;
}
