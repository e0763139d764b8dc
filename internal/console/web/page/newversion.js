// A new version of a workflow: write it, validate it, run it over tasks that there are, apply it.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, post, workflowPath } from './api.js';
import { FormDialog, openDialog } from './dialog.js';
import { draft } from './draft.js';
import { countText } from './format.js';
import { Graph } from './graph.js';
import { html } from './html.js';
import { eventName } from './lines.js';
import { withToken } from './live.js';
import { Incomplete, State, TaskLink, Trouble } from './parts.js';
import { refusal } from './rights.js';
import { address, route, taskAddress } from './route.js';
import { Changes, Lines } from './slider.js';

const choices = [['', 'that have ended'], ['state:pending,processing,undoing,error', 'that are open'], ['state:error', 'that are held']];
const tasks = (n) => `${countText(n)} ${n === 1 ? 'task' : 'tasks'}`;

/** Why the text can't be applied now; empty: it can. check: of this text; null: it wasn't checked. */
function refusalOf(check) {
  const why = refusal('apply a definition');
  if (why) return why;
  if (!check) return 'Validate the text first.';
  if (check.faults.length > 0) return 'The text has faults.';
  if (check.applied === 'same') return 'This version is applied already.';
  return check.applied === 'other' ? `This version has another definition, and a version never changes. Write version: ${check.next_version}.` : '';
}

/** Fills the text with a version, as the next version of its workflow. */
async function load(name, version) {
  const [d, list] = await withToken(() => Promise.all([ask(workflowPath(name, version)), ask('/workflows')]));
  const next = 1 + Math.max(Number(version), ...list.workflows.filter((w) => w.workflow === name).map((w) => w.version));
  draft.value = { source: d.source.replace(/^version: \d+$/m, `version: ${next}`), from: `${name}/${version}` };
}

export function NewVersion() {
  const { params } = route.value;
  const [name, version] = [params.get('workflow'), params.get('version')];
  const [state, setState] = useState({}); // {busy, problem, check, run, of, runOf, notice}
  const area = useRef();
  const { source } = draft.value;
  useEffect(() => {
    if (!name || draft.value.from === `${name}/${version}`) return;
    load(name, version).catch((fault) => setState({ problem: fault.message }));
  }, [name, version]);
  const send = async (what, request) => {
    if (state.busy) return;
    setState((s) => ({ ...s, busy: what, problem: '', notice: null }));
    try {
      const came = await withToken(request);
      setState((s) => ({ ...s, ...came, busy: '' }));
    } catch (fault) {
      setState((s) => ({ ...s, problem: fault.message, busy: '' }));
    }
  };
  const validate = () => send('validate', async () => ({ check: await post('/workflows/validate', { definition: source }), of: source }));
  const dryRun = (e) => {
    e.preventDefault();
    const form = new FormData(e.target);
    send('run', async () => ({ run: await post('/workflows/dry-run', { definition: source, filter: form.get('filter'), limit: Number(form.get('limit')) }), runOf: source }));
  };
  const why = refusalOf(state.of === source ? state.check : null);
  const applied = (done) => setState((s) => ({ ...s, problem: '', of: '', notice: done }));
  const apply = () => (why ? setState((s) => ({ ...s, problem: `It can't be applied. ${why}` })) : openDialog(html`<${Apply} check=${state.check} source=${source} done=${applied} />`));
  /** Selects the place of a fault in the text. */
  const show = (f) => {
    const lines = source.split('\n');
    const from = lines.slice(0, f.line - 1).reduce((n, l) => n + l.length + 1, 0);
    area.current.focus();
    area.current.setSelectionRange(from + Math.max(0, f.column - 1), from + (lines[f.line - 1]?.length ?? 0));
  };
  return html`<p class="quiet">A version never changes: a change is a new version. New tasks get the newest one, and running tasks keep theirs. Validate and dry run write nothing.</p>
    <div class="draft"><div>
      <label>Definition in YAML<textarea data-draft data-from=${draft.value.from} ref=${area} spellcheck="false" value=${source} onInput=${(e) => { draft.value = { ...draft.value, source: e.target.value }; }}></textarea></label>
      <div class="buttons"><button type="button" data-validate class="primary" aria-disabled=${Boolean(state.busy)} onClick=${validate}>Validate</button>
        <button type="button" data-apply aria-disabled=${Boolean(why)} aria-description=${why || undefined} title=${why} onClick=${apply}>Apply</button></div>
      <form class="bar" onSubmit=${dryRun}>
        <label class="beside">Tasks<select name="filter">${choices.map(([filter, text]) => html`<option key=${filter} value=${filter}>${text}</option>`)}</select></label>
        <label class="beside">at most<input name="limit" type="number" min="1" max="500" required defaultValue="100" /></label>
        <button data-run aria-disabled=${Boolean(state.busy)}>Dry run</button></form>
    </div><div>
      <div role="status">${state.busy && html`<p class="quiet">${state.busy === 'run' ? 'The tasks are simulated.' : 'The text is checked.'}</p>`}
        ${state.notice && html`<p class="notice">${state.notice.result === 'unchanged' ? 'It was applied before: ' : 'Applied: '}<a href=${address(['workflows', state.notice.workflow, String(state.notice.version)])}>${state.notice.workflow}/${state.notice.version}</a></p>`}
        ${state.check && state.of === source && html`<${Verdict} check=${state.check} />`}</div>
      <${Trouble} text=${state.problem} />
      ${state.check && html`<${Check} check=${state.check} show=${show} />`}
      ${state.run && html`<${Outcome} run=${state.run} changed=${state.runOf !== source} />`}
    </div></div>`;
}

/** One sentence on a checked text. */
function Verdict({ check }) {
  const { faults, definition: d, applied, next_version: next } = check;
  if (faults.length > 0) return html`<p class="problem">${faults.length === 1 ? 'The text has 1 fault.' : `The text has ${faults.length} faults.`}</p>`;
  const said = { no: 'It can be applied.', same: 'It is applied already.', other: `This version has another definition. The next free version is ${next}.` }[applied];
  return html`<p class=${applied === 'other' ? 'problem' : 'notice'}>${d.workflow}/${d.version} is valid. ${said}</p>`;
}

const place = (f) => (f.line ? `line ${f.line}, column ${f.column}` : '');

function Check({ check, show }) {
  const { faults, definition: d, diff } = check;
  if (faults.length > 0) {
    return html`<section aria-label="Faults"><ol class="faults">${faults.map((f, i) => html`<li key=${i}>${f.line && html`<button type="button" class="quiet" onClick=${() => show(f)}>${place(f)}</button>`} ${f.path && html`<code>${f.path}</code>`} <span class="error">${f.what}</span>${f.fix && html`<span class="quiet">; ${f.fix}</span>`}</li>`)}</ol></section>`;
  }
  return html`<section aria-label="The definition"><${Graph} graph=${d.graph} />
    ${diff && html`<h2>Compared with version ${diff.from}</h2>${diff.changes.length === 0 ? html`<p class="quiet">Nothing differs.</p>` : html`<${Changes} list=${diff.changes} /><details><summary>All lines</summary><${Lines} list=${diff.lines} /></details>`}`}
    ${!diff && html`<p class="quiet">It is the first version of ${d.workflow}.</p>`}</section>`;
}

const leftOut = {
  time: 'the dry run reached its time limit', events: 'they have more events than a dry run reads', unreadable: 'their events can\'t be read',
  definition: 'the console doesn\'t have their definition', refused: 'they can\'t be simulated under this definition',
};

/** What would become of the tasks. */
function Outcome({ run, changed }) {
  return html`<section aria-label="Dry run"><h2>Dry run</h2>${changed && html`<p class="quiet">The text has changed since the dry run.</p>`}<${Incomplete} answer=${run} />
    <p data-outcome><b>${tasks(run.tasks)}</b> simulated under ${run.workflow}/${run.version}: ${countText(run.same)} take the same course, ${countText(run.differ)} another one.
      ${run.assumed > 0 && ` In ${tasks(run.assumed)} some agents' answers aren't recorded: the dry run assumes that the attempts complete.`}${run.more && ' More tasks match.'}</p>
    ${run.left_out.map((l) => html`<p key=${l.why} class="quiet">${tasks(l.tasks)} left out: ${leftOut[l.why]}${l.detail && ` (${l.detail})`}. ${l.samples.map((id) => html`<${TaskLink} key=${id} id=${id} /> `)}</p>`)}
    ${run.differences.length > 0 && html`<div class="table" tabindex="0" role="region" aria-label="Differences"><table><thead><tr><th scope="col" class="number">Tasks</th><th scope="col">First difference</th><th scope="col">Ends</th><th scope="col">Samples</th></tr></thead>
      <tbody>${run.differences.map((d, i) => html`<tr key=${i}><td class="number">${countText(d.tasks)}</td><td class="text">${where(d)}${d.commands && html` <span class="quiet">An operator's command is not simulated.</span>`}${d.stalled && html` <span class="error">${d.stalled}</span>`}</td>
        <td class="name"><${State} name=${d.then} />${d.otherwise !== d.then && html` <span class="quiet">instead of</span> <${State} name=${d.otherwise} />`}</td>
        <td class="name">${d.samples.map((s) => html`<a key=${s.task} class="id" href=${taskAddress(s.task, { fork: s.at, version: 'draft' })}>${s.task}</a> `)}</td></tr>`)}</tbody></table></div>`}
    ${run.left_off > 0 && html`<p class="quiet">${countText(run.left_off)} further differences aren't listed.</p>`}</section>`;
}

const where = (d) => (d.event ? `${d.in === 'then' ? 'new' : 'no longer'}: ${eventName(d.event)}${d.step ? ` of ${d.step}` : ''}` : 'the same events');

/** Asks for the reason and applies. */
function Apply({ check, source, done }) {
  const { workflow, version, agents } = check.definition;
  const send = async (form) => done(await post('/workflows', { definition: source, reason: form.get('reason') }));
  return html`<${FormDialog} title=${`Apply ${workflow}/${version}`} label="Apply" send=${send}
    does=${`New tasks of ${workflow} that name no version get this one at once, if it is the newest. It can't be changed afterwards. Its agents: ${agents.join(', ') || 'none'}.`}>
    <label>Reason, written to the log<input name="reason" required autofocus /></label><//>`;
}
