// Parts of the page that are loaded when they are first shown.

import { useEffect, useState } from 'preact/hooks';
import { html } from './html.js';
import { Loading, Trouble } from './parts.js';

/** Shows the export of a module, named of, with the other properties. load: () => import(...). */
export function Later({ load, of, ...props }) {
  const [loaded, setLoaded] = useState({});
  useEffect(() => {
    let gone = false;
    load().then((m) => { if (!gone) setLoaded({ Part: m[of] }); }, () => {
      if (!gone) setLoaded({ problem: 'This part of the page can\'t be loaded: the console may have another version now. Reload the page.' });
    });
    return () => { gone = true; };
  }, []);
  const { Part, problem } = loaded;
  if (problem) return html`<${Trouble} text=${problem} />`;
  return Part ? html`<${Part} ...${props} />` : html`<${Loading} />`;
}
