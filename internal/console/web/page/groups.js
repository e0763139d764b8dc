// Held tasks by their cause: groups of the same workflow, step, code and message without digits and ids.

import { orderBatch } from './batch.js';
import { html } from './html.js';
import { countText, numberOf } from './format.js';
import { Empty, Instant, TaskLink } from './parts.js';
import { tasksAddress, term } from './route.js';

export function Groups({ answer }) {
  if (answer.groups.length === 0) return html`<${Empty}>No task is held.<//>`;
  return html`<ul class="groups">${answer.groups.map((g) => html`<${Group} key=${g.group} g=${g} />`)}</ul>
    ${answer.left_off > 0 && html`<p class="quiet">${numberOf(answer.left_off, 'more group')} not shown.</p>`}`;
}

function Group({ g }) {
  const list = tasksAddress(g.other ? 'state:error' : `error_group:${g.group}`);
  const where = g.other ? 'all other causes' : html`${g.workflow} ${g.step && html`<span class="quiet">at</span> ${g.step}`}${g.kind === 'undo' && html` <span class="state is-undoing">undo</span>`}`;
  return html`<li class="group" data-group=${g.group}>
    <div class="number"><a href=${list}><b>${countText(g.held)}</b><span>held</span></a></div>
    <div class="what"><p><b>${where}</b> ${g.code && html`<code class="error">${g.code}</code>`}</p><p class="message">${g.message || g.pattern}</p>
      <p class="quiet">first <${Instant} at=${g.first_seen} />, last <${Instant} at=${g.last_seen} />${g.holds > g.held && `, ${numberOf(g.holds, 'hold')} in total`}${g.versions?.length > 1 && `, versions ${g.versions.map((v) => `${v.version} (${v.held})`).join(', ')}`}</p>
      ${g.sample?.length > 0 && html`<p class="sample"><span class="quiet">such as</span> ${g.sample.slice(0, 3).map((id) => html`<${TaskLink} key=${id} id=${id} /> `)}</p>`}</div>
    <${Trend} trend=${g.trend} />
    <div class="buttons">${g.held > 0 && !g.other && html`<button type="button" onClick=${() => orderBatch('resubmit', { filter: `state:error ${term('error_group', g.group)}` })}>resubmit</button>`}<a class="button" href=${list}>Tasks</a></div>
  </li>`;
}

/** The holds of the last 24 hours, a bar an hour. */
function Trend({ trend }) {
  if (!trend) return html`<div></div>`;
  const most = Math.max(1, ...trend.holds);
  const n = trend.holds.length;
  return html`<svg class="trend" viewBox="0 0 ${n * 5} 32" role="img" aria-label=${`holds by hour, the last ${n} hours: ${trend.holds.join(' ')}`}><title>holds by hour, the last ${n} hours</title>${trend.holds.map((h, i) => html`<rect key=${i} x=${i * 5} width="4" y=${32 - Math.max(1, (h / most) * 32)} height=${Math.max(1, (h / most) * 32)} class=${h ? 'some' : ''} />`)}</svg>`;
}
