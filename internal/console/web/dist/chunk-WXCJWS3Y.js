import{d as s,e as b,f as $,h as o,i as g}from"./chunk-OO7H2YNA.js";var v=g(null),u=null;function S(e){u=document.activeElement,v.value=e}function i(){document.querySelector("dialog[open]")?.close(),v.value=null,u?.isConnected&&u.focus()}function D({label:e,forced:l,onClose:n=i,children:a}){let t=$();return b(()=>{t.current.showModal()},[]),o`<dialog ref=${t} aria-label=${e} onCancel=${r=>{r.preventDefault(),l||n()}}>${a}</dialog>`}function q({title:e,does:l,label:n,danger:a,send:t,children:r}){let[c,f]=s(""),[m,p]=s(!1);return o`<${D} label=${e}><form class="tall" onSubmit=${async d=>{if(d.preventDefault(),!m){p(!0),f("");try{await t(new FormData(d.target)),i()}catch(y){f(y.message),p(!1)}}}}>
    <h2>${e}</h2><p>${l}</p>
    <div role="alert">${c&&o`<p class="problem">${c}</p>`}</div>
    ${r}
    <div class="buttons end"><button type="button" class="quiet" onClick=${i}>Close</button>
      <button data-send class=${a?"danger":"primary"} aria-disabled=${m}>${n}</button></div>
  </form><//>`}export{v as a,S as b,i as c,D as d,q as e};
