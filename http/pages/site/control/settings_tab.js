// Every setting as it holds, and where it comes from.
import { get, post } from '../api.js';
import { html, useState } from '../vendor/preact.js';
import { Act } from '../act.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const look = async () => (await get('admin/settings')).settings;

function reloaded({ applied, needs_restart: restart, reopened }) {
  const told = [`Applied: ${applied.join(', ') || 'nothing'}`];
  if (restart.length) told.push(`need a restart: ${restart.join(', ')}`);
  if (reopened.length) told.push(`opened anew: ${reopened.join(', ')}`);
  return told.join('; ');
}

export function SettingsTab({ connection }) {
  const { found, problem, again } = usePolled(look, 10_000, [connection.restarts]);
  const [words, search] = useState('');
  const rows = (found || []).filter(({ name }) => name.includes(words)).map(({ name, value, source, secret, set }) => [
    html`<code>${name}</code>`, secret ? (set ? 'set, not shown' : 'not set') : html`<code>${JSON.stringify(value)}</code>`, source,
  ]);
  const reload = async () => {
    const told = reloaded(await post('admin/reload'));
    again();
    return told;
  };
  return html`${problem && html`<p class="problem">${problem}</p>`}
    <div class="row"><label>Name <input value=${words} onInput=${(event) => search(event.target.value)} /></label>
      <${Act} label="Reload" run=${reload} /></div>
    <${Table} caption="Settings" heads=${['Setting', 'Value', 'Source']} rows=${rows} />`;
}
