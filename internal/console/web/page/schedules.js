// Schedules: when each starts a task next, what became of its last instant, and commands to it.

import { useState } from 'preact/hooks';
import { html } from './html.js';
import { useAnswer } from './live.js';
import { Commands } from './named.js';
import { Instant, State, Table, TaskLink, Trouble } from './parts.js';

const last = (o) => o && (o.task ? html`<${TaskLink} id=${o.task} /> ${o.status}` : `skipped: ${o.skipped}`);

const pause = { command: 'pause', place: 'pause', does: 'It starts no task until it is resumed. Its tasks continue.' };
const resume = { command: 'resume', place: 'pause', does: 'It starts tasks again from now on. Instants during the pause are skipped.' };
const trigger = { command: 'trigger', place: 'trigger', does: 'It starts a task now, even if an earlier one is open.' };

function commandsOf(s) {
  const fault = s.state === 'unusable' && 'The schedule can\'t be used. Apply it again, or delete it.';
  return [s.state === 'paused' ? resume : pause, trigger].map((c) => ({ ...c, fault }));
}

const columns = (said, done) => [
  { head: 'Schedule', kind: 'name', cell: (s) => s.schedule },
  { head: 'State', cell: (s) => html`<${State} name=${`schedule ${s.state}`} />` },
  { head: 'Rule', cell: (s) => s.definition && html`<code>${s.definition.cron ?? `every ${s.definition.every}`}</code> ${s.definition.zone}` },
  { head: 'Next', cell: (s) => s.next_at && html`<${Instant} at=${s.next_at} />` },
  { head: 'Last', cell: (s) => s.last && html`<${Instant} at=${s.last.at} />` },
  { head: 'Result', kind: 'text', cell: (s) => s.fault || last(s.last) },
  { name: 'Commands', head: '', cell: (s) => html`<${Commands} kind="schedule" name=${s.schedule} commands=${commandsOf(s)} said=${said} done=${done} />` },
];

export function Schedules() {
  const { data, problem, refresh } = useAnswer('/schedules', {}, { every: 2000 });
  const [said, setSaid] = useState('');
  const done = (text) => { setSaid(text); refresh(); };
  return html`<${Trouble} text=${problem} />${data?.schedules.length > 0 && html`<section><h2>Schedules</h2><p role="status">${said}</p>
    <${Table} label="Schedules" columns=${columns(setSaid, done)} rows=${data.schedules} keyOf=${(s) => s.schedule} /></section>`}`;
}
