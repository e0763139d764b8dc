// The versions of a workflow with their open tasks, and migrations of those to the version that is shown.

import { useState } from 'preact/hooks';
import { countText } from './format.js';
import { html } from './html.js';
import { migrateDialog } from './migrate.js';
import { Table } from './parts.js';
import { CommandButton, refusal } from './rights.js';
import { address, tasksAddress, term } from './route.js';
import { openStates } from './texts.js';

const openOf = (w) => openStates.reduce((n, s) => n + (w.tasks[s] ?? 0), 0);

const columns = (version, said) => [
  { head: 'Version', kind: 'name', cell: (w) => (String(w.version) === version ? `${w.version}, shown here` : html`<a data-open href=${address(['workflows', w.workflow, String(w.version)])}>${w.version}</a>`) },
  { head: 'Open tasks', kind: 'number', cell: (w) => (openOf(w) ? html`<a href=${tasksAddress(`${term('workflow', `${w.workflow}/${w.version}`)} state:${openStates.join(',')}`)}>${countText(openOf(w))}</a>` : html`<span class="faint">0</span>`) },
  { head: 'Deprecated', kind: 'text', cell: (w) => w.deprecated?.why },
  { name: 'Migration', head: '', cell: (w) => String(w.version) !== version && openOf(w) > 0 && html`<${CommandButton} data-migrate aria-label=${`migrate to ${version} the open tasks of version ${w.version}`} why=${refusal('migrate tasks')} refused=${said}
    dialog=${() => migrateDialog(term('workflow', `${w.workflow}/${w.version}`), Number(version))}>migrate to ${version}<//>` },
];

export function Versions({ version, versions }) {
  const [said, setSaid] = useState('');
  return html`<section><h2>Versions</h2><p role="status">${said}</p>
    <${Table} label="Versions" columns=${columns(version, setSaid)} rows=${versions} keyOf=${(w) => w.version} /></section>`;
}
