// The definition that is being written in this tab. Forks of the samples of a dry run take it.

import { signal } from '@preact/signals';

/** source: the text. from: the version that it was made from, NAME/VERSION; empty: none. */
export const draft = signal({ source: '', from: '' });
