import{i as l}from"./chunk-GYE6J3PU.js";var o=l(null),e=()=>o.value?.file?.split(/[\\/]/).at(-1)??"";export{o as a,e as b};
