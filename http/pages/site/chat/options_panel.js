// The form for a conversation's settings.
import { html, useEffect, useState } from '../vendor/preact.js';
import { EFFORTS, jsonProblem, modelDefault, NUMBERS } from './options.js';
import { chosenServers, offeredServers } from './servers.js';

function JsonField({ name, label, wanted, example, options, set }) {
  const problem = jsonProblem(options[name], wanted);
  return html`<label class="field"><span>${label}</span>
    <textarea rows="3" class="mono" spellcheck=${false} placeholder=${example} value=${options[name] || ''}
      aria-invalid=${problem ? 'true' : 'false'} onInput=${(event) => set(name, event.target.value)}></textarea>
    ${problem && html`<span class="problem">${problem}</span>`}</label>`;
}

// Chosen ones that are no longer offered are shown too, so that they can be left out.
function Servers({ options, set }) {
  const [offered, setOffered] = useState([]);
  useEffect(() => { offeredServers().then(setOffered); }, []);
  const chosen = chosenServers(options, offered);
  const names = [...new Set([...offered.map(({ id }) => id), ...chosen])];
  const turn = (name) => set('servers', names.filter((each) => chosen.includes(each) !== (each === name)).join(','));
  if (!names.length) return null;
  return html`<div class="field" role="group" aria-label="MCP servers"><span>MCP servers whose tools it may call</span>
    <div class="row">${names.map((name) => html`<label key=${name}><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => turn(name)} /> ${name}</label>`)}</div></div>`;
}

export function OptionsPanel({ conversation, model, changed }) {
  const { options } = conversation;
  const set = (name, value) => {
    conversation.options = { ...conversation.options, [name]: value };
    changed();
  };
  return html`<section class="options" id="options" aria-label="Settings of this conversation">
    <label class="field"><span>System prompt</span>
      <textarea rows="2" value=${options.system || ''} onInput=${(event) => set('system', event.target.value)}></textarea></label>
    <div class="grid">${NUMBERS.map((field) => html`<label class="field" key=${field.name}><span>${field.label}</span>
        <input type="number" step=${field.step} min=${field.min} max=${field.max} value=${options[field.name] ?? ''}
          placeholder=${modelDefault(model, field.name)} onInput=${(event) => set(field.name, event.target.value)} /></label>`)}
      ${model?.thinking && html`<label class="field"><span>Reasoning</span>
        <select value=${options.effort || ''} onChange=${(event) => set('effort', event.target.value)}>
          <option value="">default</option>${EFFORTS.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`}
    </div>
    <${JsonField} name="schema" label="JSON schema of the answer" wanted="object" options=${options} set=${set}
      example='{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}' />
    <${JsonField} name="tools" label="Tools that it may call; you answer for them" wanted="array" options=${options} set=${set}
      example='[{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]' />
    <${Servers} options=${options} set=${set} />
  </section>`;
}
