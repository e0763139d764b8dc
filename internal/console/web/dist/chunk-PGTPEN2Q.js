import{d as u,e as $,f as g,h as o,i as v}from"./chunk-GYE6J3PU.js";var c=v(null),i=null;function E(e){i=document.activeElement,c.value=e}function a(){document.querySelector("dialog[open]")?.close(),c.value=null,i?.isConnected&&i.focus()}addEventListener("hashchange",()=>c.value&&a());function y({label:e,forced:n,onClose:l=a,children:r}){let t=g();return $(()=>{t.current.showModal()},[]),o`<dialog ref=${t} aria-label=${e} onCancel=${s=>{s.preventDefault(),n||l()}}>${r}</dialog>`}function S({title:e,does:n,label:l,danger:r,send:t,children:s}){let[f,m]=u(""),[p,d]=u(!1);return o`<${y} label=${e}><form class="tall" onSubmit=${async b=>{if(b.preventDefault(),!p){d(!0),m("");try{await t(new FormData(b.target)),a()}catch(h){m(h.message),d(!1)}}}}>
    <h2>${e}</h2><p>${n}</p>
    <div role="alert">${f&&o`<p class="problem">${f}</p>`}</div>
    ${s}
    <div class="buttons end"><button type="button" class="quiet" onClick=${a}>Close</button>
      <button data-send class=${r?"danger":"primary"} aria-disabled=${p}>${l}</button></div>
  </form><//>`}export{c as a,E as b,a as c,y as d,S as e};
