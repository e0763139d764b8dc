async function h(i,o,r,c,f,d){let t=await fetch(i,{signal:d,headers:r?{...o,"Last-Event-ID":r}:o});if(!t.ok)throw new Error(`HTTP ${t.status}`);if(c(),t.status===204)return;let p=t.body.pipeThrough(new TextDecoderStream).getReader(),s="";for(;;){let{value:l,done:u}=await p.read();if(u)return;let a=(s+l).split(`

`);s=a.pop();for(let w of a){let e=Object.fromEntries(w.split(`
`).filter(n=>!n.startsWith(":")).map(n=>n.split(/: (.*)/s,2)));e.id&&f(e.id,e.event,e.data)}}}export{h as a};
