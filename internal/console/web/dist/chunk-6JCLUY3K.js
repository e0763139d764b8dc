import{i as o}from"./chunk-GYE6J3PU.js";var t=o({source:"",from:""});export{t as a};
