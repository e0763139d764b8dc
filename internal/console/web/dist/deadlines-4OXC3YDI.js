import{a,b}from"./chunk-WMAU5LCT.js";import"./chunk-2YRJYEU2.js";import"./chunk-OB4ESXSE.js";import"./chunk-UHTZOUWE.js";export{b as Deadlines,a as Predicted};
