// The time that charts show, which the reader chooses once for all screens.

import { html } from './html.js';
import { kept } from './kept.js';

const spans = ['1h', '6h', '24h', '168h'];
const spanNames = { '168h': '7 d' };

export const span = kept('waybill.span', '1h');

export const Spans = () => html`<div class="views" role="group" aria-label="Span">${spans.map((v) => html`<button key=${v} type="button" class="chip" aria-pressed=${v === span.value} onClick=${() => { span.value = v; }}>${spanNames[v] ?? v.replace('h', ' h')}</button>`)}</div>`;
