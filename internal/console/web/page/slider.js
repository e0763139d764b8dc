// A slider over the events of a task: the task as of an event, and what that event changed.

import { html } from './html.js';
import { Instant, Trouble } from './parts.js';
import { lookOfEvent, summary } from './lines.js';
import { Icon } from './parts.js';
import { layout } from './json.js';

/** answer: of states?seq=. go(seq) moves it; go(null) returns to the present. fork() forks the task at the event. */
export function Slider({ lines, seq, answer, go, fork }) {
  if (lines.length < 2 || answer.absent) return null;
  const [first, last] = [lines[0].line.seq, lines.at(-1).line.seq];
  const at = seq ?? last;
  const l = lines.find((x) => x.line.seq === at);
  const move = (n) => go(Math.min(last, Math.max(first, n)));
  return html`<section class="slider" aria-label="History"><div class="title"><h2>As of event</h2>
      <button type="button" aria-label="Previous event" aria-disabled=${at <= first} onClick=${() => move(at - 1)}>‹</button>
      <input type="range" min=${first} max=${last} value=${at} aria-label="Event" aria-valuetext=${l ? `event ${at}, ${l.name}${l.line.step ? ` of ${l.line.step}` : ''}` : `event ${at}`} onInput=${(e) => move(Number(e.target.value))} />
      <button type="button" aria-label="Next event" aria-disabled=${at >= last} onClick=${() => move(at + 1)}>›</button>
      <output>${at} of ${last}</output>${seq && html`<button type="button" class="quiet" onClick=${() => go(null)}>Back to now</button>`}<button type="button" data-fork onClick=${fork}>Fork</button></div>
    ${seq && l && html`<p class="event"><span class=${`state is-${lookOfEvent(l.name)}`}><${Icon} name=${lookOfEvent(l.name)} />${l.name}</span> ${l.line.step} <${Instant} at=${l.line.at} exact /> <span class="quiet">${summary(l.line)}</span></p>`}
    <${Trouble} text=${answer.problem ?? answer.data?.fault} />
    ${seq && answer.data && html`<${Changes} list=${answer.data.changes} />`}</section>`;
}

const one = (raw) => (raw == null ? html`<span class="faint">none</span>` : html`<code>${layout(raw.text ?? JSON.stringify(raw)).map((p) => p[1]).join('')}</code>`);

/** The lines of a comparison of two texts. */
export const Lines = ({ list }) => html`<pre class="source" tabindex="0" aria-label="Difference">${list.map((l, i) => html`<span key=${i} class=${l.op}>${{ added: '+ ', removed: '- ', same: '  ' }[l.op]}${l.text}${'\n'}</span>`)}</pre>`;

/** What an event changed: path, before, after. */
export function Changes({ list }) {
  if (list.length === 0) return html`<p class="empty">This event changed nothing that is shown.</p>`;
  return html`<div class="table" tabindex="0" role="region" aria-label="Changes"><table class="changes"><thead><tr><th scope="col">Changed</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
    <tbody>${list.map((c) => html`<tr key=${c.path}><td class="name">${c.path}</td><td class="text was">${one(c.before)}</td><td class="text is">${one(c.after)}</td></tr>`)}</tbody></table></div>`;
}
