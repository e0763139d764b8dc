import{a,b}from"./chunk-CUVQCIZQ.js";import"./chunk-GYE6J3PU.js";import"./chunk-UHTZOUWE.js";export{b as Deadlines,a as Predicted};
