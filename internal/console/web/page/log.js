// The live tail of the log, with a filter and a pause.

import { useEffect, useRef, useState } from 'preact/hooks';
import { numberOf } from './format.js';
import { html } from './html.js';
import { eventName, lookOfEvent, summary } from './lines.js';
import { follow, asOf, hasToken } from './live.js';
import { parse } from './json.js';
import { Icon, Instant, TaskLink } from './parts.js';

const keptMax = 500; // lines
const burst = 200; // ms in which events are shown together

export function Log() {
  const [lines, setLines] = useState([]);
  const [paused, setPaused] = useState(false);
  const [text, setText] = useState('');
  const waiting = useRef([]);
  const [behind, setBehind] = useState(0);
  const hold = useRef(false);
  hold.current = paused;
  useEffect(() => {
    let timer;
    const show = () => {
      timer = 0;
      asOf.value = Date.now();
      if (hold.current) {
        setBehind(waiting.current.length);
        return;
      }
      const fresh = waiting.current.splice(0).reverse();
      setLines((all) => [...fresh, ...all].slice(0, keptMax));
    };
    const stop = follow('/events', (_, type, data) => {
      waiting.current.push(parse(data));
      if (waiting.current.length > keptMax) waiting.current.shift();
      timer ||= setTimeout(show, burst);
    }, { resumes: true });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [hasToken.value]);
  const resume = () => {
    if (paused) {
      const fresh = waiting.current.splice(0).reverse();
      setLines((all) => [...fresh, ...all].slice(0, keptMax));
      setBehind(0);
    }
    setPaused(!paused);
  };
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = lines.filter((l) => words.every((word) => `${l.task ?? ''} ${l.type} ${l.step ?? ''} ${l.data?.text ?? ''}`.toLowerCase().includes(word)));
  return html`<div class="bar"><label>Only events with all of these words<input type="search" data-search value=${text} spellcheck="false" onInput=${(e) => setText(e.target.value)} /></label>
      <button type="button" aria-pressed=${paused} onClick=${resume}>${paused ? `Continue${behind ? ` (${behind} new)` : ''}` : 'Pause'}</button><button type="button" class="quiet" onClick=${() => setLines([])}>Clear</button>
      <span class="quiet">${shown.length} of the last ${numberOf(lines.length, 'event')}</span></div>
    ${shown.length === 0 ? html`<p class="empty">${lines.length === 0 ? 'No event came since this screen was opened.' : 'No event has these words.'}</p>` : html`<div class="table" tabindex="0" role="region" aria-label="Events"><table class="events log" data-rows>
      <thead><tr><th scope="col">At</th><th scope="col">Task</th><th scope="col">Event</th><th scope="col">Step</th><th scope="col">Details</th><th scope="col" class="number">Offset</th></tr></thead>
      <tbody>${shown.map((l) => html`<${Line} key=${`${l.partition}/${l.offset}`} l=${l} />`)}</tbody></table></div>`}`;
}

function Line({ l }) {
  const name = eventName(l.type);
  const look = lookOfEvent(name);
  return html`<tr data-key=${`${l.partition}/${l.offset}`} tabindex="-1"><td><${Instant} at=${l.at} exact /></td><td class="name">${l.task && html`<${TaskLink} id=${l.task} />`}</td>
    <td class="name"><span class=${`state is-${look}`}><${Icon} name=${look} />${name}</span></td><td class="name">${l.step}${l.attempt ? html`<span class="quiet"> #${l.attempt}</span>` : ''}</td>
    <td class="text">${summary(l)}</td><td class="number faint">${l.partition}/${l.offset}</td></tr>`;
}
