// Sound in and out: a recording is transcribed, an answer is spoken, each by a model of the server.
import { request } from '../api.js';

export const recordingProblem = () => {
  if (!window.isSecureContext) return 'Recording needs https or localhost.';
  if (!navigator.mediaDevices?.getUserMedia || !window.MediaRecorder) return 'This browser does not record.';
  return '';
};

// Begins a recording; the returned function ends it, and resolves to the text if that is wanted.
export async function record(model) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream);
  const pieces = [];
  recorder.ondataavailable = (event) => pieces.push(event.data);
  recorder.start();
  return async (isWanted = true) => {
    await new Promise((resolve) => {
      recorder.onstop = resolve;
      recorder.stop();
    });
    for (const track of stream.getTracks()) track.stop();
    if (!isWanted) return '';
    const form = new FormData();
    form.append('model', model);
    form.append('file', new Blob(pieces, { type: recorder.mimeType }), 'recording.webm');
    const response = await request('v1/audio/transcriptions', { method: 'POST', form });
    return String((await response.json()).text || '').trim();
  };
}

export async function speak(model, text) {
  const body = { model, input: text, response_format: 'mp3' };
  const response = await request('v1/audio/speech', { method: 'POST', body });
  return URL.createObjectURL(await response.blob());
}
