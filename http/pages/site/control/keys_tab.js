// API keys: made, listed, revoked. A secret is shown once, and nowhere kept.
import { get, post, remove } from '../api.js';
import { CopyButton } from '../copy_button.js';
import { useKey } from '../key_dialog.js';
import { html, useState } from '../vendor/preact.js';
import { Act } from '../act.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const look = async () => (await get('admin/keys')).keys;
const day = (unix) => (unix === null ? '' : new Date(unix * 1000).toLocaleDateString());

export function KeysTab({ connection }) {
  const { found, problem, status, again } = usePolled(look, 5_000, [connection.restarts]);
  const [made, setMade] = useState(null);
  if (status === 404) return html`<p class="hint">This server has no keys.</p>`;
  const rows = (found || []).map((key) => [
    key.name, key.admin ? 'operator' : key.metrics ? 'metrics' : '', key.metrics ? '' : key.models.join(', ') || 'all models',
    [key.requests_per_minute && `${key.requests_per_minute} requests/min`, key.tokens_per_minute && `${key.tokens_per_minute} tokens/min`, key.concurrent && `${key.concurrent} at once`].filter(Boolean).join(', '),
    day(key.created), day(key.expires), html`<span class="mono">${key.id}</span>`,
    key.revoked === null ? html`<${Act} label="Revoke" name=${key.name} twice run=${() => remove(`admin/keys/${encodeURIComponent(key.id)}`).then(again)} />` : `revoked ${day(key.revoked)}`,
  ]);
  const isFirst = Boolean(found) && !found.some(({ revoked }) => revoked === null);
  const use = (secret) => {
    useKey(secret);
    again();
  };
  const make = async (body) => {
    const kept = await post('admin/keys', body);
    setMade({ ...kept, isUsed: isFirst });
    if (isFirst) use(kept.secret); // from now on nothing is answered without one
    else again();
  };
  return html`${problem && html`<p class="problem">${problem}</p>`}
    ${found && html`<${NewKey} make=${make} isFirst=${isFirst} />`}
    ${made && html`<section class="card" aria-label="New key"><h2>${made.key.name}</h2><p>This is the only time that its secret is shown:</p>
      <p><code class="secret">${made.secret}</code></p><div class="row"><${CopyButton} kind="main" textOf=${() => made.secret} />
      ${made.isUsed ? html`<span class="faint">This page uses it, until the tab is closed.</span>`
        : html`<button type="button" onClick=${() => { use(made.secret); setMade({ ...made, isUsed: true }); }}>Use it here</button>`}
      <button type="button" onClick=${() => setMade(null)}>I have it</button></div></section>`}
    <${Table} caption="Keys" heads=${['Name', 'Role', 'Models', 'Limits', 'Made', 'Expires', 'Id', '']} rows=${rows} ids=${found?.map(({ id }) => id)} empty=${found && !problem ? 'No keys: no request needs one.' : ''} />`;
}

function NewKey({ make, isFirst }) {
  const [name, write] = useState('');
  const [admin, setAdmin] = useState(false);
  const [limit, setLimit] = useState('');
  const body = { name: name.trim(), admin: admin || isFirst, requests_per_minute: limit ? Number(limit) : null };
  return html`<section class="card" aria-label="Make a key"><h2>Make a key</h2>
    ${isFirst && html`<p class="faint">With the first key, every request needs one. It is for operators, and this page goes on with it.</p>`}
    <div class="row"><label>Name <input value=${name} maxlength="64" onInput=${(event) => write(event.target.value)} /></label>
      <label>Requests a minute <input type="number" min="1" value=${limit} onInput=${(event) => setLimit(event.target.value)} /></label>
      <label><input type="checkbox" checked=${admin || isFirst} disabled=${isFirst} onChange=${(event) => setAdmin(event.target.checked)} /> for operators</label>
      <${Act} label="Make" name="a key" disabled=${!name.trim()} run=${() => make(body)} /></div></section>`;
}
