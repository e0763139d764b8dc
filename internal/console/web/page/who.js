// Who uses the page, and of what console: the answer of /whoami.

import { signal } from '@preact/signals';

/** null: not known yet. */
export const who = signal(null);

/** The name of the exported file that the console serves, without its directories; empty: it serves a log. */
export const fileName = () => who.value?.file?.split(/[\\/]/).at(-1) ?? '';
