// The course of a task: a row for each step, a bar for each attempt, and below the undo of each step. Waiting has textures
// of its own: for a turn (queue), for the next attempt (backoff), the long one (cool-down). Time in which nothing runs is
// collapsed to a break with a label.

import { useRef } from 'preact/hooks';
import { coarse, durationText, localText, now } from './format.js';
import { html } from './html.js';
import { dataOf } from './lines.js';
import { Icon, lookOf } from './parts.js';
import { becameTexts } from './texts.js';

const breakShare = 0.25; // of the whole: an idle time of more is collapsed
const breakMin = 3000; // ms
const breakWidth = 0.05; // of the width
const breaksMax = 8;
const ends = { completed: 'completed', failed: 'failed', rejected: 'rejected', expired: 'expired', repeated: 'completed', errored: 'failed', undone: 'completed' };
const runs = /^(step|undo|child|items|withdrawal)$/;
const undoes = /^(undo|withdrawal|items\.(undo|withdrawn))/;

/** The bars of each lane: {id, undo, bars: [{kind, from, to, attempt, state, unknown, due}]}. until: where open bars end. */
function lanesOf(lines, steps, until) {
  const lanes = new Map();
  const lane = (id, undo) => {
    const key = `${undo ? 'undo' : 'do'} ${id}`;
    if (!lanes.has(key)) lanes.set(key, { key, id, undo, bars: [], open: null, wait: null });
    return lanes.get(key);
  };
  for (const s of steps) lane(s.id, false);
  const done = new Map(); // when a step was done
  for (const { line, name, ms } of lines) {
    const [what, ...rest] = name.split('.');
    if (!line.step || what === 'item') continue;
    const [verb, undo] = [rest.at(-1), undoes.test(name)];
    const at = lane(line.step, undo);
    if (at.wait && verb !== 'waiting') {
      at.wait.to = ms;
      at.wait = null;
    }
    if (what === 'check') {
      if (verb === 'started') at.bars.push(at.check = { kind: 'check', attempt: line.attempt, from: ms, due: dataOf(line).due, state: 'running' });
      else if (ends[verb] && at.check) {
        Object.assign(at.check, { to: ms, state: ends[verb], became: dataOf(line).became });
        at.check = null;
      } else if (verb === 'waiting') at.bars.push(at.wait = { kind: 'backoff', from: ms, due: dataOf(line).due });
      continue;
    }
    const run = undo && lane(line.step, false).open;
    if (run) run.to ??= ms; // a child, or items, that ran
    if (verb === 'started' && !(at.open && what === 'items')) { // more items
      const queued = at.bars.length === 0 && what === 'step' && readyAt(steps, line.step, done);
      if (queued && ms - queued > 50) at.bars.push({ kind: 'queue', from: queued, to: ms });
      at.open = { kind: runs.test(what) ? 'run' : 'timer', attempt: line.attempt, from: ms, due: dataOf(line).due, state: 'running' };
      at.bars.push(at.open);
    } else if (ends[verb] && at.open) {
      Object.assign(at.open, { to: ms, state: ends[verb], unknown: dataOf(line).effect === 'unknown' || verb === 'expired' });
      at.open = null;
    } else if (verb === 'waiting') {
      const { due, policy } = dataOf(line);
      const long = policy?.cool_down_ms && line.attempt >= policy.max_attempts;
      at.wait = { kind: long ? 'cool' : 'backoff', from: ms, due };
      at.bars.push(at.wait);
    }
    if (verb === 'repeated' && dataOf(line).due) {
      at.wait = { kind: 'backoff', from: ms, due: dataOf(line).due };
      at.bars.push(at.wait);
    }
    if (['completed', 'skipped', 'caught', 'released'].includes(verb) && !undo) done.set(line.step, ms);
  }
  for (const l of lanes.values()) for (const b of l.bars) b.to ??= Math.max(b.from, until);
  return [...lanes.values()].sort((a, b) => a.undo - b.undo);
}

/** When the steps that a step needs were done; false: unknown. */
function readyAt(steps, id, done) {
  const needs = steps.find((s) => s.id === id)?.needs;
  if (!needs || needs.length === 0 || needs.some((n) => !done.has(n))) return false;
  return Math.max(...needs.map((n) => done.get(n)));
}

/** A scale from ms to a share of the width. Long times in which nothing runs are breaks. */
function scaleOf(from, to, lanes, marks) {
  const running = lanes.flatMap((l) => l.bars.filter((b) => b.kind === 'run' || b.kind === 'check'));
  const at = [...new Set([from, to, ...marks, ...lanes.flatMap((l) => l.bars.flatMap((b) => [b.from, b.to]))])].filter((t) => t >= from && t <= to).sort((a, b) => a - b);
  const gaps = at.slice(1).map((t, i) => ({ from: at[i], to: t, ms: t - at[i] }));
  const idle = gaps.filter((g) => g.ms > breakMin && !running.some((b) => b.from < g.to && b.to > g.from)).sort((a, b) => b.ms - a.ms).slice(0, breaksMax);
  let total = to - from;
  const breaks = new Set();
  for (const g of idle) {
    if (g.ms < total * breakShare || g.ms === total) break;
    breaks.add(g);
    total -= g.ms;
  }
  const rest = Math.max(1, total);
  const share = 1 - breaks.size * breakWidth;
  let x = 0;
  const pieces = gaps.map((g) => {
    const width = breaks.has(g) ? breakWidth : (g.ms / rest) * share;
    x += width;
    return { ...g, x: x - width, width };
  });
  const place = (ms) => {
    const p = pieces.find((q) => ms <= q.to) ?? pieces.at(-1);
    if (!p) return 0;
    return Math.min(1, Math.max(0, p.x + (p.ms ? ((ms - p.from) / p.ms) * p.width : 0)));
  };
  return { place, breaks: pieces.filter((p) => breaks.has(gaps.find((g) => g.from === p.from))) };
}

const names = { run: 'attempt', queue: 'waited to start', backoff: 'waits for the next attempt', cool: 'cools down', timer: 'waits', check: 'is checked' };

const checkText = (b, lane) => `check of ${lane.id}, attempt ${b.attempt}: ${b.became ? becameTexts[b.became] ?? b.became : b.state}`;

function barTitle(b, lane) {
  const what = b.kind === 'check' ? checkText(b, lane) : b.kind === 'run' ? `${lane.undo ? 'undo of ' : ''}${lane.id}, attempt ${b.attempt}: ${b.state}` : `${lane.id} ${names[b.kind]}`;
  return `${what}${b.unknown ? ', may have happened' : ''}\n${localText(b.from, true)}, ${durationText(b.to - b.from)}`;
}

/** lines are measured. at: an instant that is marked, in ms; bars after it are faint. choose(id) is called for a step. */
export function Gantt({ lines, steps, task, at, choose }) {
  const box = useRef();
  if (lines.length === 0) return null;
  const open = !['processed', 'undone', 'cancelled', 'error'].includes(task.state);
  const from = lines[0].ms;
  const until = Math.max(lines.at(-1).ms, open ? now.value : 0);
  const lanes = lanesOf(lines, steps, until);
  const deadline = task.complete_by && Date.parse(task.complete_by);
  const { place, breaks } = scaleOf(from, Math.max(until, from + 1), lanes, lines.map((l) => l.ms));
  const pc = (share) => `${(share * 100).toFixed(3)}%`;
  const bar = (b, i, lane) => html`<i key=${i} class=${`bar ${b.kind}${b.kind === 'run' ? ` is-${lookOf(b.state)}` : ''}${b.unknown ? ' unknown' : ''}${at && b.from > at ? ' later' : ''}`}
    style=${{ left: pc(place(b.from)), width: pc(place(b.to) - place(b.from)) }} title=${barTitle(b, lane)}></i>${b.due && b.kind === 'run' && Date.parse(b.due) <= b.to + 1
      ? html`<i key=${`due${i}`} class="tick" style=${{ left: pc(place(Date.parse(b.due))) }} title=${`complete by ${localText(b.due, true)}`}></i>` : null}`;
  const row = (lane) => html`<div class=${`lane${lane.undo ? ' undo' : ''}`} key=${lane.key} data-lane=${lane.key}>
    <button type="button" class="lane-name" onClick=${() => choose(lane.id)}>${lane.undo && html`<${Icon} name="undoing" />`}${lane.id}</button>
    <div class="track" role="img" aria-label=${laneText(lane)}>${lane.bars.map((b, i) => bar(b, i, lane))}</div></div>`;
  const undo = lanes.filter((l) => l.undo);
  return html`<div class="gantt" ref=${box}>
    <div class="lane axis"><span class="lane-name quiet" title="from the first event to the last">${durationText(until - from)}</span><div class="track" aria-hidden="true"><span class="from">${localText(from).slice(11)}</span>
      ${breaks.map((p) => html`<span key=${p.from} class="gap" style=${{ left: pc(p.x), width: pc(p.width) }} title=${`nothing runs for ${durationText(p.ms)}`}>${coarse(p.ms)}</span>`)}</div></div>
    ${lanes.filter((l) => !l.undo).map(row)}
    ${undo.length > 0 && html`<div class="lane-title">Undo</div>`}${undo.map(row)}
    <div class="overlay" aria-hidden="true">${breaks.map((p) => html`<i key=${p.from} class="break" style=${{ left: pc(p.x), width: pc(p.width) }}></i>`)}
      ${at && html`<i class="cursor" style=${{ left: pc(place(at)) }}></i>`}${deadline && deadline <= until && html`<i class="deadline" style=${{ left: pc(place(deadline)) }} title="complete by"></i>`}</div>
    <${Legend} lanes=${lanes} />
  </div>`;
}

/** The bars of a lane in words, for readers of screens. */
function laneText(lane) {
  if (lane.bars.length === 0) return `${lane.id}: not started`;
  return `${lane.undo ? 'undo of ' : ''}${lane.id}: ${lane.bars.map((b) => (b.kind === 'run' ? `attempt ${b.attempt} ${b.state}${b.unknown ? ', may have happened' : ''}` : b.kind === 'check' ? checkText(b, lane) : names[b.kind]) + ` ${durationText(b.to - b.from)}`).join('; ')}`;
}

function Legend({ lanes }) {
  const bars = lanes.flatMap((l) => l.bars);
  const has = (test) => bars.some(test);
  const all = [['queue', 'queue'], ['backoff', 'backoff'], ['cool', 'cool-down'], ['timer', 'wait'], ['check', 'check']].filter(([k]) => has((b) => b.kind === k));
  if (has((b) => b.unknown)) all.push(['run is-failed unknown', 'may have happened']);
  return all.length > 0 && html`<div class="legend" aria-hidden="true">${all.map(([kind, word]) => html`<span key=${kind}><i class=${`bar ${kind}`}></i>${word}</span>`)}</div>`;
}
