// The frame of the page: navigation, the screen that the address names, the token, and what is open above it.

import { render } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { html } from './html.js';
import { opened, Modal } from './dialog.js';
import { clock, clocks, localText } from './format.js';
import { prefix } from './keys.js';
import { Guard } from './components.js';
import { asOf, forgetToken, giveToken, hasToken, tokenProblem, useAnswer } from './live.js';
import { route } from './route.js';
import { token } from './api.js';
import { Later } from './later.js';
import { fileName, who } from './who.js';

const screenNames = [['', 'Now'], ['tasks', 'Tasks'], ['held', 'Held'], ['batches', 'Batches'], ['workflows', 'Workflows'], ['agents', 'Agents'], ['deadletters', 'Dead letters'], ['as-of', 'As of'], ['log', 'Log']];
const titles = { ...Object.fromEntries(screenNames), alerts: 'Alerts', deadlines: 'Deadlines', submit: 'Submit a task' };

/** A screen, which is loaded when it is first shown. */
const screen = (load, of) => (props) => html`<${Later} load=${load} of=${of} ...${props} />`;
const Now = screen(() => import('./now.js'), 'Now');
const Tasks = screen(() => import('./tasks.js'), 'Tasks');
const Task = screen(() => import('./task.js'), 'Task');
const Held = screen(() => import('./held.js'), 'Held');
const Batches = screen(() => import('./batches.js'), 'Batches');
const Batch = screen(() => import('./batches.js'), 'Batch');
const Workflows = screen(() => import('./workflows.js'), 'Workflows');
const Workflow = screen(() => import('./workflows.js'), 'Workflow');
const NewVersion = screen(() => import('./newversion.js'), 'NewVersion');
const Agents = screen(() => import('./agents.js'), 'Agents');
const Deadletters = screen(() => import('./deadletters.js'), 'Deadletters');
const Deadlines = screen(() => import('./deadlines.js'), 'Deadlines');
const Alerts = screen(() => import('./alerts.js'), 'Alerts');
const AsOf = screen(() => import('./asof.js'), 'AsOf');
const Log = screen(() => import('./log.js'), 'Log');
const Submit = screen(() => import('./submit.js'), 'Submit');
const screens = { '': Now, tasks: Tasks, held: Held, batches: Batches, workflows: Workflows, agents: Agents, deadletters: Deadletters, log: Log, alerts: Alerts, deadlines: Deadlines, submit: Submit, 'as-of': AsOf };

/** Screens of what an exported file doesn't have, and why. */
const notOfFile = {
  agents: 'An exported file has the events of tasks. It has no data about agents.',
  batches: 'No command can be sent to a file.',
  deadletters: 'An exported file has the events of tasks. It has no dead letters.',
  log: 'An exported file doesn\'t change, so there is nothing to follow. The page of a task has all of its events.',
  submit: 'Nothing can be submitted to a file.',
};
const lists = { alerts: 'held', deadlines: '', submit: 'tasks' };

const Missing = () => html`<p class="empty">There is no such page. <a href="#/">Go to Now</a></p>`;

/** The component of the address, its title, and a key that changes where nothing of the old screen may stay. */
function screenOf({ name, rest }) {
  if (name === 'tasks' && rest.length > 0) {
    const id = rest.join('/');
    return { title: id, own: true, key: `task ${id}`, of: html`<${Task} id=${id} />` };
  }
  if (name === 'workflows' && rest.length === 1 && rest[0] === 'new') {
    return { title: 'New version', key: 'new version', of: html`<${NewVersion} />` };
  }
  if (name === 'workflows' && rest.length > 1) {
    const version = rest.at(-1);
    const workflow = rest.slice(0, -1).join('/');
    return { title: `${workflow}/${version}`, own: true, key: `workflow ${workflow}/${version}`, of: html`<${Workflow} name=${workflow} version=${version} />` };
  }
  if (name === 'batches' && rest.length > 0) {
    const id = rest.join('/');
    return { title: `Batch ${id}`, own: true, key: `batch ${id}`, of: html`<${Batch} id=${id} />` };
  }
  const of = screens[name];
  if (who.value?.file && notOfFile[name]) return { title: titles[name], key: `no ${name}`, of: html`<p class="empty">${notOfFile[name]}</p>` };
  return { title: of ? titles[name] : 'Not found', key: name, of: html`<${of ?? Missing} />` };
}

function Nav() {
  const at = lists[route.value.name] ?? route.value.name;
  const nav = useRef();
  useEffect(() => { // a narrow window shows a part of it
    const shown = nav.current.getBoundingClientRect();
    const current = nav.current.querySelector('[aria-current]')?.getBoundingClientRect();
    if (current) nav.current.scrollLeft += Math.max(0, current.right - shown.right) - Math.max(0, shown.left - current.left);
  }, [at]);
  return html`<nav aria-label="Screens" ref=${nav}>${screenNames.filter(([name]) => !(who.value?.file && notOfFile[name])).map(([name, title]) => html`<a key=${name} href=${`#/${name}`} aria-current=${name === at ? 'page' : undefined}>${title}</a>`)}</nav>`;
}

function Header({ me }) {
  return html`<header>
    <a class="name" href="#/">Waybill</a>
    ${fileName() && html`<span class="label file" title=${me.file}>${fileName()}</span>`}
    <${Nav} />
    <div class="tools">
      <span id="freshness" role="status" aria-live="off">${asOf.value > 0 && ['as of ', html`<time>${localText(asOf.value)}</time>`]}</span>
      <label class="beside">Times <select value=${clock.value} onChange=${(e) => { clock.value = e.target.value; }}>${clocks.map((c) => html`<option key=${c} value=${c}>${c === 'utc' ? 'UTC' : c}</option>`)}</select></label>
      ${hasToken.value && html`<button id="forget" type="button" class="quiet" onClick=${forgetToken}>Forget the token</button>`}
      ${!me?.read_only && html`<a class="button" href="#/submit">Submit</a>`}
    </div>
  </header>`;
}

/** Asks for a token. */
function AskToken() {
  const give = (e) => {
    e.preventDefault();
    giveToken(new FormData(e.target).get('token').trim());
  };
  return html`<${Modal} label="Token" forced><form class="tall" onSubmit=${give}>
    <h2>Token</h2>
    <p role="alert">${token.get() ? tokenProblem.value.message : 'This console needs a token. The token is kept until this tab is closed.'}</p>
    <label>Token<input name="token" type="password" autocomplete="off" required autofocus /></label>
    <div class="buttons end"><button class="primary">Continue</button></div>
  </form><//>`;
}

function Page() {
  const { data: me } = useAnswer('/whoami', {}, { once: true });
  useEffect(() => {
    if (!me) return;
    who.value = me;
    document.documentElement.toggleAttribute('data-file', Boolean(me.file));
  }, [me]);
  const shown = screenOf(route.value);
  const heading = useRef();
  const first = useRef(true);
  useEffect(() => {
    document.title = [shown.title, fileName(), 'Waybill'].filter(Boolean).join(' - ');
    if (!first.current) heading.current?.focus({ preventScroll: true }); // where a reader of screens goes on
    first.current = false;
  }, [shown.key, fileName()]);
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector('#main').focus(); }}>Skip to the content</a>
    <${Header} me=${me} />
    <main id="main" tabindex="-1" ref=${heading} key=${shown.key}>
      ${me?.file && html`<p class="quiet">${me.read_only}</p>`}
      ${!shown.own && html`<h1>${shown.title}</h1>`}
      <${Guard} key=${shown.key}>${shown.of}<//>
    </main>
    <footer><a href="web/licences.txt">Licences</a> <a href="api/v1/openapi.json">API</a> <span>Press <kbd>?</kbd> for keys</span></footer>
    ${prefix.value && html`<div class="prefix" role="status"><kbd>g</kbd> and then n t h b w a d l s</div>`}
    ${opened.value}
    ${tokenProblem.value && html`<${AskToken} key=${tokenProblem.value.message + (token.get() ?? '')} />`}`;
}

render(html`<${Page} />`, document.querySelector('#page'));
