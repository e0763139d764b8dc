// Buttons of commands that take the role operator.

import { openDialog } from './dialog.js';
import { html } from './html.js';
import { who } from './who.js';

/** Why the reader of the page can't do what takes the role operator; empty: it can. what: it. */
export function refusal(what) {
  const me = who.value;
  if (me?.read_only) return me.read_only;
  return me && !me.roles.includes('operator') ? `You are a ${me.role}. To ${what} you need the role operator.` : '';
}

/** A button that opens a dialog. why: why it can't; empty: it can. refused is called with why. The other properties are those of a button. */
export const CommandButton = ({ why, refused, dialog, children, ...props }) => html`<button type="button" ...${props} aria-disabled=${Boolean(why)} aria-description=${why || undefined} title=${why || undefined}
  onClick=${() => (why ? refused(why) : openDialog(dialog()))}>${children}</button>`;
