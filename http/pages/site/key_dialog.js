// The API key: asked for when the server wants one, and kept for the session of this tab only.

const NAME = 'greenroom-key';
let asking = null;
let finish = null; // ends the question on the screen
let declined = null; // the key for which the reader wanted to give no other: what asks again and again stays quiet

export const currentKey = () => sessionStorage.getItem(NAME) || '';

// Resolves to true when there is another key to try; all requests that were refused share one question.
export function askForKey(refused = '', reason = '') {
  if (currentKey() !== refused) return Promise.resolve(true);
  if (declined === refused) return Promise.resolve(false);
  asking ??= show(reason).finally(() => { asking = null; });
  return asking;
}

// Requests that wait for a key go on with this one.
export function useKey(key) {
  sessionStorage.setItem(NAME, key);
  finish?.(true);
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function show(reason) {
  const dialog = document.getElementById('key-dialog');
  const input = element('input', { type: 'password', id: 'key-input', autocomplete: 'off', spellcheck: false });
  input.value = currentKey();
  const use = element('button', { type: 'submit', className: 'main' }, 'Use this key');
  const forget = element('button', { type: 'button' }, 'Forget it');
  const cancel = element('button', { type: 'button' }, 'Cancel');
  const form = element(
    'form', {},
    element('h2', { id: 'key-title' }, 'API key'),
    element('p', { className: 'problem' }, reason),
    element('label', { className: 'field', htmlFor: 'key-input' },
      element('span', {}, 'Kept in this tab until it is closed, and sent to this server alone'), input),
    element('div', { className: 'row' }, use, forget, cancel),
  );
  dialog.replaceChildren(form);
  return new Promise((resolve) => {
    const end = (another) => {
      declined = another ? null : currentKey();
      dialog.onclose = null;
      finish = null;
      dialog.close();
      resolve(another);
    };
    finish = end;
    form.onsubmit = (event) => {
      event.preventDefault();
      const key = input.value.trim();
      // Headers hold ASCII alone; anything else would fail in fetch, without a word.
      if (!/^[\x21-\x7e]+$/.test(key)) {
        form.querySelector('.problem').textContent = 'A key has letters, digits and signs, and no spaces.';
        return;
      }
      useKey(key);
    };
    forget.onclick = () => {
      sessionStorage.removeItem(NAME);
      end(false);
    };
    cancel.onclick = () => end(false);
    dialog.onclose = () => end(false);
    dialog.showModal();
    input.focus();
  });
}

export const showKey = () => {
  asking ??= show('').finally(() => { asking = null; });
  return asking;
};
