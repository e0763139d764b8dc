// Held tasks by their cause: groups of the same workflow, step, code and message without digits and ids.

import { useState } from 'preact/hooks';
import { ask, post, requestID, taskPath } from './api.js';
import { closeDialog, Modal, openDialog } from './dialog.js';
import { html } from './html.js';
import { countText } from './format.js';
import { Empty, Instant, TaskLink } from './parts.js';
import { tasksAddress, term } from './route.js';

export function Groups({ answer, done }) {
  if (answer.groups.length === 0) return html`<${Empty}>No task is held.<//>`;
  return html`<ul class="groups">${answer.groups.map((g) => html`<${Group} key=${g.group} g=${g} done=${done} />`)}</ul>
    ${answer.left_off > 0 && html`<p class="quiet">${countText(answer.left_off)} more groups are not shown.</p>`}`;
}

function Group({ g, done }) {
  const list = tasksAddress(g.other ? 'state:error' : `error_group:${g.group}`);
  const where = g.other ? 'all other causes' : html`${g.workflow} ${g.step && html`<span class="quiet">at</span> ${g.step}`}${g.kind === 'undo' && html` <span class="state is-undoing">undo</span>`}`;
  return html`<li class="group" data-group=${g.group}>
    <div class="number"><a href=${list}><b>${countText(g.held)}</b><span>held</span></a></div>
    <div class="what"><p><b>${where}</b> ${g.code && html`<code class="error">${g.code}</code>`}</p><p class="message">${g.message || g.pattern}</p>
      <p class="quiet">first <${Instant} at=${g.first_seen} />, last <${Instant} at=${g.last_seen} />${g.holds > g.held && `, ${countText(g.holds)} holds in all`}${g.versions?.length > 1 && `, versions ${g.versions.map((v) => `${v.version} (${v.held})`).join(', ')}`}</p>
      ${g.sample?.length > 0 && html`<p class="sample"><span class="quiet">such as</span> ${g.sample.slice(0, 3).map((id) => html`<${TaskLink} key=${id} id=${id} /> `)}</p>`}</div>
    <${Trend} trend=${g.trend} />
    <div class="buttons">${g.held > 0 && !g.other && html`<button type="button" onClick=${() => openDialog(html`<${Resubmit} g=${g} done=${done} />`)}>resubmit</button>`}<a class="button" href=${list}>Tasks</a></div>
  </li>`;
}

/** The holds of the last 24 hours, a bar an hour. */
function Trend({ trend }) {
  if (!trend) return html`<div></div>`;
  const most = Math.max(1, ...trend.holds);
  const n = trend.holds.length;
  return html`<svg class="trend" viewBox="0 0 ${n * 5} 32" role="img" aria-label=${`holds by hour, the last ${n} hours: ${trend.holds.join(' ')}`}><title>holds by hour, the last ${n} hours</title>${trend.holds.map((h, i) => html`<rect key=${i} x=${i * 5} width="4" y=${32 - Math.max(1, (h / most) * 32)} height=${Math.max(1, (h / most) * 32)} class=${h ? 'some' : ''} />`)}</svg>`;
}

const waitMax = 15_000; // ms in which a canary must have left the hold

/** Waits until a task isn't being worked on. Returns its state. */
async function settledState(id, stop) {
  const until = Date.now() + waitMax;
  let state = 'processing';
  while (Date.now() < until && !stop.asked) {
    ({ state } = await ask(taskPath(id), { min_offset: 'end' }));
    if (!['pending', 'processing', 'undoing'].includes(state)) break;
    await new Promise((done) => { setTimeout(done, 500); });
  }
  return state;
}

/** Resubmits one task of a group, and the rest only if that one isn't held again. */
function Resubmit({ g, done }) {
  const [log, setLog] = useState([]);
  const [running, setRunning] = useState(false);
  const [stop] = useState({ asked: false });
  const [requests] = useState(() => new Map());
  const say = (text) => setLog((l) => [...l, text]);
  const one = async (id, reason) => {
    if (!requests.has(id)) requests.set(id, requestID());
    return post(taskPath(id, '/resubmit'), { request_id: requests.get(id), reason });
  };
  const send = async (e) => {
    e.preventDefault();
    if (running) return;
    const form = new FormData(e.target);
    const [reason, rate] = [form.get('reason'), Number(form.get('rate'))];
    setRunning(true);
    stop.asked = false;
    try {
      await resubmitAll(g, { reason, rate, stop, say, one });
    } catch (problem) {
      say(`Stopped: ${problem.message}`);
    }
    setRunning(false);
    done?.();
  };
  const close = () => {
    stop.asked = true;
    closeDialog();
  };
  return html`<${Modal} label="Resubmit a group" onClose=${close}><form class="tall" onSubmit=${send}>
    <h2>Resubmit ${countText(g.held)} held tasks</h2><p>One task goes first, as a canary. If it is held again, no other one is resubmitted. The page must stay open.</p>
    <label>Reason, written to the log<input name="reason" required autofocus /></label>
    <label>Tasks a second, after the canary<input name="rate" type="number" min="1" max="50" value="10" /></label>
    <div class="scroll" role="status" tabindex="0" aria-label="Progress">${log.map((l, i) => html`<p key=${i}>${l}</p>`)}</div>
    <div class="buttons end"><button type="button" class="quiet" onClick=${close}>Close</button>${running ? html`<button type="button" onClick=${() => { stop.asked = true; }}>Stop</button>` : html`<button data-send class="primary">resubmit</button>`}</div>
  </form><//>`;
}

async function resubmitAll(g, { reason, rate, stop, say, one }) {
  const filter = `state:error ${term('error_group', g.group)}`;
  let page = await ask('/tasks', { filter, page_size: 200, min_offset: 'end' });
  const canary = page.tasks[0]?.id;
  if (!canary) {
    say('No task of this group is held any more.');
    return;
  }
  await one(canary, reason);
  say(`${canary} was resubmitted.`);
  const state = await settledState(canary, stop);
  if (state === 'error') {
    say(`${canary} is held again. No other task was resubmitted.`);
    return;
  }
  say(`${canary} is ${state}.`);
  let sent = 1;
  let refused = 0;
  for (;;) {
    for (const t of page.tasks) {
      if (stop.asked) {
        say(`Stopped after ${sent}.`);
        return;
      }
      if (t.id === canary) continue;
      await one(t.id, reason).then(() => sent++, () => refused++);
      await new Promise((done) => { setTimeout(done, 1000 / rate); });
    }
    if (!page.next_page_token) break;
    page = await ask('/tasks', { filter, page_size: 200, page_token: page.next_page_token });
  }
  say(`${sent} resubmitted, ${refused} refused.`);
}
