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
import { Agents } from './agents.js';
import { Alerts } from './alerts.js';
import { Deadletters } from './deadletters.js';
import { Held } from './held.js';
import { Log } from './log.js';
import { Now } from './now.js';
import { Submit } from './submit.js';
import { Task } from './task.js';
import { Tasks } from './tasks.js';
import { Workflow, Workflows } from './workflows.js';

const nav = [['', 'Now'], ['tasks', 'Tasks'], ['held', 'Held'], ['workflows', 'Workflows'], ['agents', 'Agents'], ['deadletters', 'Dead letters'], ['log', 'Log']];
const titles = { ...Object.fromEntries(nav), alerts: 'Alerts', submit: 'Submit a task' };
const screens = { '': Now, tasks: Tasks, held: Held, workflows: Workflows, agents: Agents, deadletters: Deadletters, log: Log, alerts: Alerts, submit: Submit };
const lists = { alerts: 'held', submit: 'tasks' };

const Missing = () => html`<p class="empty">There is no such page. <a href="#/">Go to Now</a></p>`;

/** The component of the address, its title, and a key that changes where nothing of the old screen may stay. */
function screenOf({ name, rest }) {
  if (name === 'tasks' && rest.length > 0) {
    const id = rest.join('/');
    return { title: id, own: true, key: `task ${id}`, of: html`<${Task} id=${id} />` };
  }
  if (name === 'workflows' && rest.length > 1) {
    const version = rest.at(-1);
    const workflow = rest.slice(0, -1).join('/');
    return { title: `${workflow}/${version}`, own: true, key: `workflow ${workflow}/${version}`, of: html`<${Workflow} name=${workflow} version=${version} />` };
  }
  const of = screens[name];
  return { title: of ? titles[name] : 'Not found', key: name, of: html`<${of ?? Missing} />` };
}

function Nav() {
  const at = lists[route.value.name] ?? route.value.name;
  return html`<nav aria-label="Screens">${nav.map(([name, title]) => html`<a key=${name} href=${`#/${name}`} aria-current=${name === at ? 'page' : undefined}>${title}</a>`)}</nav>`;
}

function Header({ me }) {
  return html`<header>
    <a class="name" href="#/">Waybill</a>
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
  const shown = screenOf(route.value);
  const heading = useRef();
  const first = useRef(true);
  useEffect(() => {
    document.title = `${shown.title} - Waybill`;
    if (!first.current) heading.current?.focus({ preventScroll: true }); // where a reader of screens goes on
    first.current = false;
  }, [shown.key]);
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector('#main').focus(); }}>Skip to the content</a>
    <${Header} me=${me} />
    <main id="main" tabindex="-1" ref=${heading} key=${shown.key}>
      ${me?.file && html`<p class="quiet">${me.read_only}</p>`}
      ${!shown.own && html`<h1>${shown.title}</h1>`}
      <${Guard} key=${shown.key}>${shown.of}<//>
    </main>
    <footer><a href="web/licences.txt">Licences</a> <a href="api/v1/openapi.json">API</a> <span>Press <kbd>?</kbd> for keys</span></footer>
    ${prefix.value && html`<div class="prefix" role="status"><kbd>g</kbd> and then n t h w a d l s</div>`}
    ${opened.value}
    ${tokenProblem.value && html`<${AskToken} key=${tokenProblem.value.message + (token.get() ?? '')} />`}`;
}

render(html`<${Page} />`, document.querySelector('#page'));
