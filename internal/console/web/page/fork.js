// Fork: a task under another definition from one of its events on, beside what happened. The console simulates it; nothing is
// executed.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, post, workflowPath } from './api.js';
import { draft } from './draft.js';
import { durationText, localText } from './format.js';
import { html } from './html.js';
import { eventName, lookOfEvent, summary } from './lines.js';
import { useAnswer, withToken } from './live.js';
import { ErrorText, Icon, Instant, Loading, State, Trouble } from './parts.js';
import { Steps } from './taskparts.js';
import { fileName } from './who.js';

const assumptions = { completed: 'it completes', failed: 'it fails, without an effect', rejected: 'it is rejected', silent: 'no answer comes in time' };
const rowsShown = 200;
const own = 'own'; // instead of a version
const ofDraft = 'draft'; // the text that is being written in this tab

/**
 * lines: of the timeline. at: the event that both courses share at last. version, assume: of the address; with a version the fork is
 * run at once. rerun(at, version, assume) changes the address. close() ends the fork.
 */
export function Fork({ task, path, lines, at, version: given, assume, rerun, close }) {
  const list = useAnswer('/workflows', {}, { once: true });
  const versions = (list.data?.workflows ?? []).filter((w) => w.workflow === task.workflow && (w.steps.length > 0 || !fileName())).map((w) => w.version).reverse();
  const written = given === ofDraft;
  const [chosen, setChosen] = useState(written ? own : given || null); // a version, or own
  const [source, setSource] = useState(written ? draft.value.source : '');
  const [state, setState] = useState({});
  const heading = useRef();
  useEffect(() => { heading.current?.focus(); }, [Boolean(list.data)]);
  const version = chosen ?? versions.find((v) => v !== task.version) ?? versions[0] ?? own;
  const choose = async (e) => {
    const next = e.target.value;
    setChosen(next === own ? own : Number(next));
    if (next !== own || source) return;
    try {
      setSource((await withToken(() => ask(workflowPath(task.workflow, task.version)))).source);
    } catch {
      // the text stays empty: the console doesn't have the definition
    }
  };
  const run = async (body, stopped = () => false) => {
    setState({ busy: true });
    let next;
    try {
      next = { fork: await withToken(() => post(`${path}/fork`, body)) };
    } catch (fault) {
      next = { problem: fault.message };
    }
    if (!stopped()) setState(next);
  };
  useEffect(() => {
    if (!given || written && !source) return undefined;
    let gone = false;
    run({ at, ...(written ? { definition: source } : { version: given }), assume: assume || 'completed' }, () => gone);
    return () => { gone = true; };
  }, [at, given, assume]);
  const submit = (e) => {
    e.preventDefault();
    const form = new FormData(e.target);
    const from = Number(form.get('at'));
    if (version === own) run({ at: from, assume: form.get('assume'), definition: form.get('definition') });
    else if (from === at && version === given && form.get('assume') === assume) run({ at, version, assume });
    else rerun(from, version, form.get('assume'));
  };
  if (!list.data && !list.problem) return html`<${Loading} what="the versions" />`;
  return html`<section class="fork" aria-label="Fork"><div class="title"><h2 tabindex="-1" ref=${heading}>Fork</h2><span class="quiet">What would have happened under another definition? Nothing is executed.</span>
      <button type="button" class="quiet" onClick=${close}>Close</button></div>
    <form onSubmit=${submit}>
      <label>After event<input type="number" name="at" min="1" max=${lines.at(-1).line.seq} required defaultValue=${at} /></label>
      <label>Definition<select name="version" value=${version} onChange=${choose}>${versions.map((v) => html`<option key=${v} value=${v}>${task.workflow}/${v}${v === task.version ? ' (its own)' : ''}</option>`)}<option value=${own}>another definition</option></select></label>
      <label>If no answer is recorded<select name="assume">${Object.entries(assumptions).map(([k, text]) => html`<option key=${k} value=${k} selected=${k === assume}>${text}</option>`)}</select></label>
      ${version === own && html`<label class="wide">Definition in YAML<textarea name="definition" required spellcheck=${false} value=${source} onInput=${(e) => setSource(e.target.value)}></textarea></label>`}
      <button class="primary" data-run aria-disabled=${Boolean(state.busy)}>Run</button>
    </form>
    <div role="status">${state.busy && html`<p class="quiet">The simulation runs.</p>`}<${Trouble} text=${state.problem} />${state.fork && html`<${Outcome} fork=${state.fork} />`}</div>
    ${state.fork && html`<${Courses} key=${state.fork.at} fork=${state.fork} /><details><summary>The steps at the end of the fork</summary><${Steps} task=${state.fork.task_after} /></details>`}
  </section>`;
}

const ended = (course, at) => html`<${State} name=${course.state} />${course.error && html` <${ErrorText} error=${course.error} />`}${course.ends_at && at && html` <span class="quiet">after ${durationText(Date.parse(course.ends_at) - at)}</span>`}`;

/** What became of the task in both courses. */
function Outcome({ fork }) {
  const { recorded, forked, rows } = fork;
  const first = rows[0] && Date.parse((rows[0].recorded ?? rows[0].forked).at);
  const parts = rows[fork.part_at];
  return html`<div class="outcome"><p><b>It would be</b> ${ended(forked, first)}</p><p><b>It is</b> ${ended(recorded, first)}</p>
    <p>${rows.length === 0 ? 'Nothing follows: the task has ended or is held at that event. Choose an earlier one.' : parts ? html`The courses differ from ${parts.recorded ? `event ${parts.recorded.seq}` : `${eventName(parts.forked.type)}${parts.forked.step ? ` of ${parts.forked.step}` : ''}`} on.` : 'Both courses have the same events.'}
      ${' '}${fork.assumed > 0 ? `${fork.assumed === 1 ? '1 answer is' : `${fork.assumed} answers are`} assumed, marked with a question mark.` : 'All answers are recorded.'}
      ${fork.left_out.length > 0 && ` Commands of operators are left out: events ${fork.left_out.join(', ')}.`}</p>
    ${fork.stalled && html`<p class="problem">It doesn't continue: ${fork.stalled}</p>`}</div>`;
}

const event = (line, assumed) => {
  if (!line) return html`<td class="none"><span class="sr">no such event</span></td><td></td>`;
  const name = eventName(line.type);
  return html`<td class="text" title=${summary(line)}><span class=${`state is-${lookOfEvent(name)}`}><${Icon} name=${lookOfEvent(name)} />${name}</span> ${line.step} ${line.attempt > 1 && html`<span class="quiet">attempt ${line.attempt}</span>`} ${assumed && html`<b title="results from an assumed answer">?<span class="sr"> assumed</span></b>`}</td>
    <td class="number"><span title=${localText(line.at, true)}>${localText(line.at, true).slice(11)}</span></td>`;
};

/** Both courses, a row for each event. */
function Courses({ fork }) {
  const [shown, setShown] = useState(rowsShown);
  const { rows } = fork;
  if (rows.length === 0) return null;
  return html`<div class="table" tabindex="0" role="region" aria-label="Both courses"><table class="courses"><thead><tr><th scope="col">Happened (version ${fork.recorded.version})</th><th scope="col" class="number">At</th><th scope="col">Forked (version ${fork.forked.version})</th><th scope="col" class="number">At</th></tr></thead>
      <tbody><tr class="shared"><td class="text quiet" colspan="4">Both courses have the events up to ${fork.at}${rows[0] && html`, until <${Instant} at=${(rows[0].recorded ?? rows[0].forked).at} exact />`}.</td></tr>
        ${rows.slice(0, shown).map((r, i) => html`<tr key=${i} class=${`${r.recorded && r.forked ? '' : 'single'}${i === fork.part_at ? ' parts' : ''}`}>${event(r.recorded)}${event(r.forked, r.assumed)}</tr>`)}</tbody></table></div>
    ${rows.length > shown && html`<button type="button" onClick=${() => setShown(shown + 5 * rowsShown)}>Show more of ${rows.length} rows</button>`}`;
}
