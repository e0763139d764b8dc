// Held tasks: by cause, and the alerts.

import { html } from './html.js';
import { AlertList } from './alerts.js';
import { Groups } from './groups.js';
import { countText } from './format.js';
import { useAnswer } from './live.js';
import { Incomplete, Loading, Trouble } from './parts.js';
import { address, go, route, tasksAddress } from './route.js';

export function Held() {
  const { params } = route.value;
  const ended = params.get('ended') === 'true';
  const workflow = params.get('workflow') ?? '';
  const g = useAnswer('/error-groups', { workflow, ended, limit: 200 }, { every: 3000, optional: true, on: ['holds'] });
  const names = useAnswer('/workflows', {}, { every: 10_000, on: ['workflows'] });
  return html`<${Trouble} text=${g.problem} /><${Incomplete} answer=${g.data} />
    <div class="bar"><label class="beside">Workflow <select value=${workflow} onChange=${(e) => go(address(['held'], { workflow: e.target.value, ended }))}><option value="">all</option>
        ${[...new Set((names.data?.workflows ?? []).map((w) => w.workflow))].map((n) => html`<option key=${n} value=${n}>${n}</option>`)}</select></label>
      <label class="beside"><input type="checkbox" checked=${ended} onChange=${() => go(address(['held'], { workflow, ended: !ended }))} /> also causes that no longer hold a task</label>
      <a href=${tasksAddress(workflow ? `state:error workflow:${workflow}` : 'state:error')}>All held tasks${g.data && ` (${countText(g.data.held)})`}</a> <a href="#/alerts">Alerts</a></div>
    ${g.absent ? html`<${AlertList} open />` : g.data ? html`<${Groups} answer=${g.data} />` : !g.problem && html`<${Loading} what="the groups" />`}`;
}
