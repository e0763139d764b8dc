import{a,b}from"./chunk-PHOEXGGC.js";import"./chunk-GYE6J3PU.js";import"./chunk-UHTZOUWE.js";export{a as AlertList,b as Alerts};
