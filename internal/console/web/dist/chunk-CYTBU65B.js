import{i as o}from"./chunk-TPW2HJJ7.js";var t=o({source:"",from:""});export{t as a};
