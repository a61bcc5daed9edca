// The requests in flight, and the batch at work.
import { get, post } from '../api.js';
import { seconds } from '../formats.js';
import { html } from '../vendor/preact.js';
import { Act } from '../act.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const look = async () => (await get('admin/requests')).requests;

function rowLine({ stage, prompt_tokens: prompt, cached_tokens: cached, generated_tokens: generated }) {
  return `${stage}: ${generated} tokens, prompt ${prompt}, ${cached} cached`;
}

export function RequestsTab({ connection }) {
  const { found, problem, again } = usePolled(look, 1_000, [connection.restarts]);
  const rows = (found || []).map((request) => [
    request.model, request.state, seconds(request.seconds), request.rows.map((row) => html`<div>${rowLine(row)}</div>`),
    request.choices, request.priority, html`<span class="mono">${request.id}</span>`,
    html`<${Act} label="Cancel" name=${request.id} run=${async () => {
      await post(`admin/requests/${encodeURIComponent(request.id)}/cancel`);
      again();
    }} />`,
  ]);
  return html`${problem && html`<p class="problem">${problem}</p>`}
    <${Table} caption="Requests in flight" empty="No request is being answered." rows=${rows} ids=${found?.map(({ id }) => id)}
      heads=${['Model', 'State', 'For', 'Rows of the batch', 'Choices', 'Priority', 'Request', '']} />`;
}
