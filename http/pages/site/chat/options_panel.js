// The form for a conversation's settings.
import { html } from '../vendor/preact.js';
import { EFFORTS, jsonProblem, modelDefault, NUMBERS } from './options.js';

function JsonField({ name, label, wanted, example, options, set }) {
  const problem = jsonProblem(options[name], wanted);
  return html`<label class="field"><span>${label}</span>
    <textarea rows="3" class="mono" spellcheck=${false} placeholder=${example} value=${options[name] || ''}
      aria-invalid=${problem ? 'true' : 'false'} onInput=${(event) => set(name, event.target.value)}></textarea>
    ${problem && html`<span class="problem">${problem}</span>`}</label>`;
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
  </section>`;
}
