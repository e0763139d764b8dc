// Submits a task.

import { ask, post, requestID } from './api.js';
import { el, fill, typed } from './dom.js';

export function submit(_, signal) {
  const workflow = el('select', { name: 'workflow', required: true });
  const id = el('input', { name: 'id', required: true, value: requestID(), maxlength: 256, spellcheck: 'false' });
  const input = el('textarea', { name: 'input', spellcheck: 'false' }, '{}');
  const button = el('button', {}, 'Submit');
  const said = el('div', { role: 'alert' });
  const none = el('p', { class: 'quiet' });

  async function send(e) {
    e.preventDefault();
    button.disabled = true;
    try {
      await post('/tasks', { id: id.value, workflow: workflow.value }, { input: typed('input', input.value) });
      location.hash = `#/tasks/${encodeURIComponent(id.value)}`;
    } catch (problem) {
      fill(said, el('p', { class: 'problem' }, problem.message));
    } finally {
      button.disabled = false;
    }
  }

  return {
    title: 'Submit a task',
    content: el('div', {}, said, none, el('form', { class: 'tall', onsubmit: send },
      el('label', {}, 'Workflow', workflow),
      el('label', {}, 'Id; submitting the same task again changes nothing', id),
      el('label', {}, 'Input (JSON)', input),
      button)),
    async refresh() {
      const { workflows } = await ask('/workflows', {}, signal);
      const names = [...new Set(workflows.map((w) => w.workflow))];
      fill(none, names.length === 0 && 'No workflow was applied yet. Apply one: `waybill workflow apply FILE`');
      if (names.join('\n') === Array.from(workflow.options, (o) => o.value).join('\n')) return;
      const chosen = workflow.value;
      fill(workflow, names.map((n) => el('option', { selected: n === chosen }, n)));
    },
  };
}
