import{D as b,G as c,O as w,S as d,V as k,d as s,h as l,oa as g,y as u}from"./chunk-GYE6J3PU.js";import"./chunk-UHTZOUWE.js";function L(){let{data:o,problem:y}=w("/workflows",{},{on:["workflows"]}),[r,n]=s(""),[i,m]=s(!1),[h]=s(b),p=[...new Set((o?.workflows??[]).map(e=>e.workflow))],$=async e=>{if(e.preventDefault(),i)return;let t=new FormData(e.target);m(!0),n("");try{let a=Object.fromEntries(t.get("labels").split(/\s+/).filter(Boolean).map(S=>S.split(/=(.*)/s,2))),f={id:t.get("id"),workflow:t.get("workflow")};Object.keys(a).length>0&&(f.labels=a),await c("/tasks",f,{input:u("input",t.get("input"))}),k(d(t.get("id")))}catch(a){n(a.message),m(!1)}};return l`<${g} text=${y} /><div role="alert">${r&&l`<p class="problem">${r}</p>`}</div>
    ${o&&p.length===0&&l`<p class="empty">No workflow was applied yet. Apply one: ${"`"}waybill workflow apply FILE${"`"}</p>`}
    <form class="tall" onSubmit=${$}>
      <label>Workflow<select name="workflow" required>${p.map(e=>l`<option key=${e}>${e}</option>`)}</select></label>
      <label>Id; submitting the same task again changes nothing<input name="id" required defaultValue=${h} maxlength="256" spellcheck="false" /></label>
      <label>Labels: NAME=VALUE, with spaces between them; may be empty<input name="labels" spellcheck="false" /></label>
      <label>Input (JSON)<textarea name="input" spellcheck="false" defaultValue="{}" /></label>
      <div class="buttons"><button data-send class="primary" aria-disabled=${i}>Submit</button></div>
    </form>`}export{L as Submit};
