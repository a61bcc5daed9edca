// The message that is being written: text, files, a recording.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../vendor/preact.js';
import { ACCEPTED, imageAddress, partOfFile } from './attachments.js';
import { record, recordingProblem } from './sound.js';

// What is written and not sent is kept in the tab, for each conversation; a new one has no id yet.
const placeOf = ({ id, isBranch }) => `greenroom-draft ${id || (isBranch ? 'branch' : 'new')}`;

function keepDraft(place, text) {
  try {
    if (text) sessionStorage.setItem(place, text);
    else sessionStorage.removeItem(place);
  } catch {
    // Longer than a tab may keep: it stays on the screen.
  }
}

let sent = ''; // a message that may not be stored yet

export function forgetSent(talk) {
  if (sessionStorage.getItem(placeOf(talk)) === sent) keepDraft(placeOf(talk), '');
  sent = '';
}

export function Composer({ talk, answering, sees, ears, problem, send, stop }) {
  const place = placeOf(talk);
  const [text, setText] = useState('');
  const written = useRef({});
  const write = (change) => setText((before) => {
    const after = typeof change === 'function' ? change(before) : change;
    keepDraft(place, after);
    return after;
  });
  useLayoutEffect(() => {
    const { talk: before, place: earlier } = written.current;
    written.current = { talk, place };
    if (before !== talk) return setText(sessionStorage.getItem(place) || '');
    keepDraft(earlier, '');
    return keepDraft(place, text || sent);
  }, [talk, place]);
  const [files, setFiles] = useState([]);
  const [trouble, setTrouble] = useState('');
  const [over, setOver] = useState(false);
  const picker = useRef(null);

  const attach = async (chosen) => {
    setTrouble('');
    if (!sees) return setTrouble('This model sees no images: choose one that does.');
    try {
      const parts = [];
      for (const file of chosen) parts.push({ name: file.name || 'pasted image', part: await partOfFile(file) });
      return setFiles((before) => [...before, ...parts]);
    } catch (error) {
      return setTrouble(error.message);
    }
  };
  const submit = () => {
    if (answering || problem || (!text.trim() && !files.length)) return;
    const words = text.trim() ? [{ type: 'input_text', text }] : [];
    sent = text;
    send([...words, ...files.map(({ part }) => part)]);
    setText('');
    setFiles([]);
    setTrouble('');
  };
  const onKeyDown = (event) => {
    if (event.key === 'Escape' && answering) stop();
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return; // 229: Safari, as a word is chosen
    event.preventDefault();
    submit();
  };
  const onPaste = (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    attach([...event.clipboardData.files]);
  };
  const onDrop = (event) => {
    event.preventDefault();
    setOver(false);
    attach([...event.dataTransfer.files]);
  };
  const onDragOver = (event) => {
    event.preventDefault();
    setOver(true);
  };
  return html`<section class=${over ? 'composer over' : 'composer'} aria-label="New message"
      onDrop=${onDrop} onDragOver=${onDragOver} onDragLeave=${() => setOver(false)}>
    ${files.length > 0 && html`<ul class="attached">${files.map(({ name, part }, index) => html`<li>
        ${part.type === 'input_image' ? html`<img src=${imageAddress(part.image_url)} alt=${name} />` : html`<span>PDF: ${name}</span>`}
        <button type="button" class="small" aria-label=${`Remove ${name}`} onClick=${() => setFiles(files.filter((_, at) => at !== index))}>Remove</button></li>`)}</ul>`}
    <label class="seen-by-readers" for="message">Message</label>
    <textarea id="message" rows="2" placeholder="Message – Enter sends, Shift+Enter breaks the line" value=${text}
      onInput=${(event) => write(event.target.value)} onKeyDown=${onKeyDown} onPaste=${onPaste}></textarea>
    <div class="row">
      ${answering
        ? html`<button type="button" class="main" id="stop" onClick=${stop}>Stop</button>`
        : html`<button type="button" class="main" id="send" disabled=${Boolean(problem)} onClick=${submit}>Send</button>`}
      ${sees && html`<button type="button" onClick=${() => picker.current.click()}>Attach</button>
        <input type="file" ref=${picker} hidden multiple accept=${ACCEPTED} aria-label="Images and PDFs"
          onChange=${(event) => { attach([...event.target.files]); event.target.value = ''; }} />`}
      ${ears && html`<${Recorder} model=${ears} heard=${(words) => write((before) => `${before}${before && ' '}${words}`)} fail=${setTrouble} />`}
      <span class="problem" role="alert">${trouble || problem}</span>
    </div></section>`;
}

function Recorder({ model, heard, fail }) {
  const [state, set] = useState('idle');
  const finish = useRef(null); // of a recording that goes on
  useEffect(() => () => finish.current?.(false), []); // no microphone listens to those who have left
  const missing = recordingProblem();
  if (missing) return html`<span class="faint">${missing}</span>`;
  const act = async () => {
    fail('');
    try {
      if (state === 'idle') {
        finish.current = await record(model);
        set('recording');
      } else {
        set('busy');
        const end = finish.current;
        finish.current = null;
        heard(await end());
        set('idle');
      }
    } catch (error) {
      set('idle');
      fail(error.name === 'NotAllowedError' ? 'The browser allows no recording here.' : error.message);
    }
  };
  const label = { idle: 'Record', recording: 'End the recording', busy: 'Transcribes …' }[state];
  return html`<button type="button" id="record" aria-pressed=${state === 'recording' ? 'true' : 'false'} disabled=${state === 'busy'} onClick=${act}>${label}</button>`;
}
