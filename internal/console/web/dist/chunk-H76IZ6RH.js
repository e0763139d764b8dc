async function w(i,s,n,c,f){let t=await fetch(i,{signal:f,headers:n?{...s,"Last-Event-ID":n}:s});if(!t.ok)throw new Error(`HTTP ${t.status}`);if(t.status===204)return!0;let d=t.body.pipeThrough(new TextDecoderStream).getReader(),o="";for(;;){let{value:p,done:l}=await d.read();if(l)return!1;let a=(o+p).split(`

`);o=a.pop();for(let u of a){let e=Object.fromEntries(u.split(`
`).filter(r=>!r.startsWith(":")).map(r=>r.split(/: (.*)/s,2)));e.id&&c(e.id,e.event,e.data)}}}export{w as a};
