// The events of a task. Long lists are drawn in pieces, and only the pieces near the window are in the document.

import { memo } from './components.js';
import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from './html.js';
import { durationText, numberOf } from './format.js';
import { lookOfEvent, summary } from './lines.js';
import { Icon, Instant, Json } from './parts.js';
import { taskAddress } from './route.js';

const piece = 25; // rows: more take longer than a frame to draw
const rowHeight = 30; // px, of a row that wasn't drawn yet

export function Events({ lines, unreadable, seq, step, clear, id }) {
  const [open, setOpen] = useState(() => new Set());
  const shown = step ? lines.filter((l) => l.line.step === step) : lines;
  const pieces = [];
  for (let i = 0; i < shown.length; i += piece) pieces.push(shown.slice(i, i + piece));
  const toggle = (n) => setOpen((was) => {
    const next = new Set(was);
    if (!next.delete(n)) next.add(n);
    return next;
  });
  return html`<section><div class="title"><h2>Timeline</h2><span class="quiet">${numberOf(shown.length, 'event')}</span>${step && html`<button type="button" class="chip" onClick=${clear}>step ${step}<span aria-hidden="true">×</span></button>`}</div>
    ${unreadable.map((u) => html`<p key=${u.offset} class="problem">The record at ${u.partition}/${u.offset} is unreadable: ${u.error}</p>`)}
    ${shown.length === 0 ? html`<p class="empty">No events.</p>` : html`<div class="table" tabindex="0" role="region" aria-label="Events"><table class="events" data-rows>
      <thead><tr><th scope="col" class="number">Seq</th><th scope="col">At</th><th scope="col" class="number">After</th><th scope="col">Event</th><th scope="col">Step</th><th scope="col" class="number">Took</th><th scope="col">Details</th><th scope="col" class="number">Offset</th></tr></thead>
      ${pieces.map((p, i) => html`<${Piece} key=${i} lines=${p} near=${pieces.length < 9} open=${open} toggle=${toggle} seq=${p.some((l) => l.line.seq === seq) ? seq : null} id=${id} />`)}</table></div>`}</section>`;
}

const same = (a, b) => a.open === b.open && a.seq === b.seq && a.near === b.near && a.lines.length === b.lines.length && a.lines.at(-1)?.line === b.lines.at(-1)?.line && a.lines[0]?.line === b.lines[0]?.line;

const Piece = memo(({ lines, near, open, toggle, seq, id }) => {
  const at = useRef();
  const [seen, setSeen] = useState(near);
  const height = useRef(lines.length * rowHeight);
  useEffect(() => {
    if (near) {
      setSeen(true);
      return undefined;
    }
    const observer = new IntersectionObserver(([e]) => {
      if (!e.isIntersecting && e.boundingClientRect.height > 0) height.current = e.boundingClientRect.height;
      setSeen(e.isIntersecting);
    }, { rootMargin: '1200px' });
    observer.observe(at.current);
    return () => observer.disconnect();
  }, [near]);
  return html`<tbody ref=${at}>${seen ? lines.map((l) => html`<${Row} key=${l.line.seq} l=${l} open=${open.has(l.line.seq)} toggle=${toggle} marked=${l.line.seq === seq} id=${id} />`)
    : html`<tr><td colspan="8" style=${{ height: `${height.current}px` }}></td></tr>`}</tbody>`;
}, same);

function Row({ l, open, toggle, marked, id }) {
  const { line, name } = l;
  const look = lookOfEvent(name);
  return html`<tr data-key=${line.seq} tabindex="-1" class=${marked ? 'chosen' : ''}>
    <td class="number"><a data-open href=${taskAddress(id, { seq: line.seq })} title="Show the task as of this event">${line.seq}</a></td>
    <td><${Instant} at=${line.at} exact /></td><td class="number">${durationText(l.after)}</td>
    <td class="name"><span class=${`state is-${look}`}><${Icon} name=${look} />${name}</span></td>
    <td class="name">${line.step}${line.attempt ? html`<span class="quiet"> #${line.attempt}</span>` : ''}</td>
    <td class="number">${durationText(l.took)}</td>
    <td class="text"><details open=${open} onToggle=${(e) => { if (e.target.open !== open) toggle(line.seq); }}><summary>${summary(line)}</summary>${open && html`<${Json} raw=${line.data} label=${`Data of event ${line.seq}`} />`}</details></td>
    <td class="number faint">${line.partition}/${line.offset}</td></tr>`;
}
