import{i as o}from"./chunk-OB4ESXSE.js";var t=o({source:"",from:""});export{t as a};
