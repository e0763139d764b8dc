import{i as o}from"./chunk-WSQBB7BD.js";var t=o({source:"",from:""});export{t as a};
