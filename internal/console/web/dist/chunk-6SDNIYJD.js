import{i as o}from"./chunk-Q4YHBQM5.js";var t=o({source:"",from:""});export{t as a};
