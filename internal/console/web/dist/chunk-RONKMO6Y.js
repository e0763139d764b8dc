import{i as o}from"./chunk-OO7H2YNA.js";var t=o({source:"",from:""});export{t as a};
