// Templates. Text of users is inserted as text only, never as markup.

import htm from 'htm';
import { h } from 'preact';

export const html = htm.bind(h);
